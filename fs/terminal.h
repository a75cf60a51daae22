/* What the terminal can do. A file of its own: <term.h> takes many a name for itself. */
#pragma once

#include "util.h"

/* Whether input and output are a terminal that can be written to at any place. */
bool terminal_is_screen(void);
