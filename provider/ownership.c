/* What all stores of leases share: see ownership.h. */
#include "ownership.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "uuid.h"

void ownership_op_clear(struct ownership_op *op)
{
	free(op->why);
	free(op->owner);
	*op = (struct ownership_op){ .done = op->done };
}

void ownership_ask(struct ownership *o, struct ownership_op *op, enum ownership_verb verb,
		   const char *id)
{
	o->ops->ask(o, op, verb, id);
}

static void run_answer(struct job *job)
{
	struct ownership_op *op = CONTAINER_OF(job, struct ownership_op, job);

	op->done(op);
}

void ownership_answer(struct ownership *o, struct ownership_op *op, int error, const char *why)
{
	op->error = error;
	op->why = why ? strdup(why) : NULL;
	op->job.run = run_answer;
	loop_post(o->loop, &op->job);
}

/* "<hostname>:<32 hex>", another one for each store: two mounts of a process are two owners. */
static void name_owner(char owner[OWNERSHIP_OWNER_MAX])
{
	char host[256] = "", uuid[UUID_LEN + 1];
	size_t len;

	if (gethostname(host, sizeof(host) - 1) < 0 || !host[0])
		strcpy(host, "localhost");
	uuid_make(uuid);
	len = (size_t)snprintf(owner, OWNERSHIP_OWNER_MAX, "%s:", host);
	for (const char *c = uuid; *c; c++) {
		if (*c != '-')
			owner[len++] = *c;
	}
	owner[len] = '\0';
}

int ownership_init(struct ownership *o, const struct ownership_ops *ops, struct loop *loop,
		   const struct ownership_config *config, const char **ret_why)
{
	double renewal = config && config->renewal_interval_s != 0 ? config->renewal_interval_s
								   : OWNERSHIP_RENEWAL_S;
	double multiplier = config && config->ttl_multiplier != 0 ? config->ttl_multiplier
								  : OWNERSHIP_TTL_MULTIPLIER;

	if (!(renewal >= 0.01 && renewal <= 1e6)) {
		*ret_why = "the renewal interval of leases must be from 0.01 to 1000000 seconds";
		return -EINVAL;
	}
	/* One renewal that is missed must not cost the lease. */
	if (!(multiplier >= OWNERSHIP_TTL_MULTIPLIER_MIN && multiplier <= 1e6)) {
		*ret_why = "leases must last at least two renewal intervals";
		return -EINVAL;
	}
	o->ops = ops;
	o->loop = loop;
	o->renewal_ms = (int64_t)(renewal * 1000);
	o->ttl_ms = (int64_t)(renewal * multiplier * 1000);
	name_owner(o->owner);
	return 0;
}

int ownership_new(struct loop *loop, const struct ownership_config *config, struct ownership **ret,
		  const char **ret_why)
{
	const char *why = NULL;
	int r;

	if (config && config->type == OWNERSHIP_REDIS)
		r = ownership_redis_new(loop, config, ret, &why);
	else
		r = ownership_memory_new(loop, config, ret, &why);
	if (r < 0 && why && ret_why)
		*ret_why = why;
	return r;
}

void ownership_free(struct ownership *o)
{
	if (o)
		o->ops->free(o);
}
