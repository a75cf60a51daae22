/* What all backends share: answering, and freeing answers. Loop thread. */
#include "backend.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void place_release(struct place *p)
{
	free(p->url);
	free(p->socket);
	free(p->root);
	free(p->user);
	free(p->thread);
	*p = (struct place){ 0 };
}

void backend_op_clear(struct backend_op *op)
{
	free(op->why);
	place_release(&op->place);
	for (size_t i = 0; i < op->nplaces; i++)
		place_release(&op->places[i]);
	free(op->places);
	*op = (struct backend_op){ .done = op->done };
}

static void run_answer(struct job *job)
{
	struct backend_op *op = CONTAINER_OF(job, struct backend_op, job);

	op->done(op);
}

void backend_answer(struct backend *b, struct backend_op *op, int error, const char *why)
{
	op->error = error;
	op->why = why ? strdup(why) : NULL;
	op->priv = NULL;
	op->job.run = run_answer;
	loop_post(b->loop, &op->job);
}

void backend_free(struct backend *b)
{
	if (b)
		b->ops->free(b);
}

char *backend_words(const char *fmt, ...)
{
	char *words = NULL;
	va_list ap;

	va_start(ap, fmt);
	if (vasprintf(&words, fmt, ap) < 0)
		words = NULL;
	va_end(ap);
	return words;
}
