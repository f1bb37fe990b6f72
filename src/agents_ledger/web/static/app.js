// What pages do beyond being read. Everything here is an addition: pages work without it.

import { wireCopy, wireTheme } from "./small.js";
import { wireKeys } from "./keys.js";
import { wirePalette } from "./palette.js";
import { wireThread } from "./thread.js";
import { wireLive } from "./live.js";
import { wireReplay } from "./replay.js";
import { wireChat } from "./chat.js";

wireCopy();
wireTheme();
wirePalette();
const thread = wireThread();
const replay = wireReplay(thread);
wireLive(thread);
wireChat(thread);
wireKeys(thread, replay);
