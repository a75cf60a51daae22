/* See reply.h. */
#include "reply.h"

#include <string.h>

int reply_decode(struct answer *a, struct exchange *x, int err)
{
	char nothing[1] = "";

	if (!err)
		return answer_decode(a, x->status, x->answer.len ? x->answer.data : nothing,
				     x->answer.len);
	*a = (struct answer){ .error = err, .message = strdup(x->why) };
	return err;
}
