/*
 * See workers.h. A queue under one lock for the workers, a list under the same
 * lock for what is done, and an ev_async that wakes the loop. Knows nothing of
 * requests.
 */
#include "workers.h"

#include <errno.h>

#include "lock.h"

struct workers {
	struct lock lock;
	pthread_cond_t more;      /* with lock */
	struct work *head, *tail; /* guarded by lock */
	struct work *finished;    /* guarded by lock; newest first */
	bool stopping;            /* guarded by lock */
	unsigned nthreads;        /* immutable after init */
	pthread_t *threads;       /* immutable after init */
	struct ev_loop *loop;     /* loop thread only, as the rest */
	ev_async wake;
};

static void *worker_main(void *arg)
{
	struct workers *p = arg;

	lock(&p->lock);
	for (;;) {
		struct work *w = p->head;

		if (!w) {
			if (p->stopping)
				break;
			pthread_cond_wait(&p->more, &p->lock.mutex);
			continue;
		}
		p->head = w->next;
		if (!p->head)
			p->tail = NULL;
		if (!p->stopping) {
			unlock(&p->lock);
			w->run(w);
			lock(&p->lock);
		}
		w->next = p->finished;
		p->finished = w;
		ev_async_send(p->loop, &p->wake);
	}
	unlock(&p->lock);
	return NULL;
}

static void deliver(struct workers *p)
{
	struct work *w, *next, *in_order = NULL;

	lock(&p->lock);
	w = p->finished;
	p->finished = NULL;
	unlock(&p->lock);
	for (; w; w = next) {
		next = w->next;
		w->next = in_order;
		in_order = w;
	}
	for (w = in_order; w; w = next) {
		next = w->next;
		w->done(w);
	}
}

static void on_wake(struct ev_loop *loop, ev_async *a, int revents)
{
	deliver(a->data);
}

void workers_submit(struct workers *p, struct work *w)
{
	w->next = NULL;
	lock(&p->lock);
	if (p->tail)
		p->tail->next = w;
	else
		p->head = w;
	p->tail = w;
	pthread_cond_signal(&p->more);
	unlock(&p->lock);
}

void workers_free(struct workers *p)
{
	if (!p)
		return;
	lock(&p->lock);
	p->stopping = true;
	pthread_cond_broadcast(&p->more);
	unlock(&p->lock);
	for (unsigned i = 0; i < p->nthreads; i++)
		pthread_join(p->threads[i], NULL);
	deliver(p);
	ev_ref(p->loop);
	ev_async_stop(p->loop, &p->wake);
	pthread_cond_destroy(&p->more);
	lock_destroy(&p->lock);
	free(p->threads);
	free(p);
}

int workers_new(struct ev_loop *loop, unsigned threads, struct workers **ret)
{
	struct workers *p = calloc(1, sizeof(*p));
	pthread_attr_t attr;
	int r = 0;

	if (!p)
		return -ENOMEM;
	p->threads = calloc(threads, sizeof(*p->threads));
	if (!p->threads) {
		free(p);
		return -ENOMEM;
	}
	p->loop = loop;
	lock_init(&p->lock);
	pthread_cond_init(&p->more, NULL);
	ev_async_init(&p->wake, on_wake);
	p->wake.data = p;
	ev_async_start(loop, &p->wake);
	ev_unref(loop); /* it alone does not keep the loop running */
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 1 << 20);
	while (p->nthreads < threads && r == 0) {
		r = -pthread_create(&p->threads[p->nthreads], &attr, worker_main, p);
		p->nthreads += r == 0;
	}
	pthread_attr_destroy(&attr);
	if (r < 0) {
		workers_free(p);
		return r;
	}
	*ret = p;
	return 0;
}
