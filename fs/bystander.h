/* Names that programs look for in every directory they come by. Pure. */
#pragma once

#include "util.h"

/*
 * Whether that is what git, ctags, build tools and the like look for in a directory of which they
 * know nothing, and could be the id of a thread. (Most of such names could not: they have a
 * dot.) Nobody is asked for a thread of such a name; if there is one here, it is there.
 */
bool bystander_asks_for(const char *name);
