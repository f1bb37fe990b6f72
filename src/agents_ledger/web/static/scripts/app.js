// Enhancements of the pages, which also work without scripts.

import { wireCopy, wireTheme } from "./dom.js";
import { wireKeys } from "./keys.js";
import { wirePalette } from "./palette.js";
import { wireSearch } from "./search.js";
import { wireShare } from "./share.js";
import { wireThread } from "./thread.js";
import { wireChat, wireLive } from "./live.js";
import { wireFind } from "./find.js";
import { wireReplay } from "./replay.js";
import { wireTimes } from "./times.js";
import { wireUpdates } from "./updates.js";

wireCopy();
wireTheme();
wireTimes();
const thread = wireThread();
const replay = wireReplay(thread);
wirePalette(thread, replay);
wireChat(thread, wireLive(thread));
wireSearch();
wireShare();
wireKeys(thread, replay, wireFind(thread));
wireUpdates();
