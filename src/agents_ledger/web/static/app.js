// Enhancements of the pages, which also work without scripts.

import { wireCopy, wireReload, wireTheme } from "./dom.js";
import { wireKeys } from "./keys.js";
import { wirePalette } from "./palette.js";
import { wireThread } from "./thread.js";
import { wireLive } from "./live.js";
import { wireReplay } from "./replay.js";
import { wireChat } from "./chat.js";

wireCopy();
wireTheme();
wireReload();
const thread = wireThread();
const replay = wireReplay(thread);
wirePalette(thread, replay);
wireLive(thread);
wireChat(thread);
wireKeys(thread, replay);
