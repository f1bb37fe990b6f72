// What pages do beyond being read. Everything here is an addition: pages work without it.

import { wireAgain, wireCopy, wireTheme } from "./small.js";
import { wireKeys } from "./keys.js";
import { wirePalette } from "./palette.js";
import { wireThread } from "./thread.js";
import { wireLive } from "./live.js";
import { wireReplay } from "./replay.js";
import { wireChat } from "./chat.js";

wireCopy();
wireTheme();
wireAgain();
const thread = wireThread();
const replay = wireReplay(thread);
wirePalette(thread, replay);
wireLive(thread);
wireChat(thread);
wireKeys(thread, replay);
