/* What a provisioner's answers mean. Pure; nothing in them is believed without a look. */
#pragma once

#include "backend.h"
#include "request.h"

enum provisioner_health {
	PROVISIONER_RUNNING,
	PROVISIONER_COMING,
	PROVISIONER_DEAD,
	PROVISIONER_STRANGE, /* a word that we do not know */
	PROVISIONER_UNSURE,  /* no word, or the one for a state that could not be read */
};

/* Whether a provisioner says that there is no such sandbox. */
bool provisioner_says_gone(const struct response *r);

/*
 * One sandbox, as the answer to GET and POST describes it: where it is (to be freed) and
 * whether it lives. 0; -EBADMSG with ret_why (static) if it is no such answer, is about another
 * one than id, or leads where no sandbox is. r's body is modified.
 */
int provisioner_read_one(struct response *r, const char *id, char **ret_url,
			 enum provisioner_health *ret_health, const char **ret_why) MUST_CHECK;

/*
 * All of them; what cannot be one of ours, or cannot be used, is left out. ret is to be freed
 * with place_release() for each. 0, -ENOMEM, or -EBADMSG with ret_why. r's body is modified.
 */
int provisioner_read_list(struct response *r, struct place **ret, size_t *ret_n,
			  const char **ret_why) MUST_CHECK;
