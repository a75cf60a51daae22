/*
 * How an exchange ended, as one errno with words: that of the transport, or
 * what the answer says. For the last line of most callbacks. Loop thread only.
 */
#pragma once

#include "answer.h"
#include "exchange.h"

/*
 * Takes what x->done() got. On success a->data is the answer's; on failure
 * a->message has the words, for op_finish_with(). Returns a->error. The text of
 * x->answer is used up.
 */
int reply_decode(struct answer *a, struct exchange *x, int err);
