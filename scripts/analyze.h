/*
 * What clang's analyzer cannot see by itself, included in front of every file by
 * "scripts/check analyze" and by nothing else. It follows the pointers of one element,
 * not those of its neighbours: after a deletion it believes that the list or table may
 * still lead to what was taken out, and reports every loop that frees what it deletes.
 * Here a list without one element is some other list.
 */
#pragma once

#include <utlist.h>

#include "../base/hash.h"

void *analyzed_rest(void);

#undef DL_DELETE2
#define DL_DELETE2(head, del, prev, next) ((void)(del), (head) = analyzed_rest())

#undef HASH_DELETE
#define HASH_DELETE(hh, head, del) ((void)(del), (head) = analyzed_rest())
