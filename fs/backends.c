/* See backends.h: one function per kind of source. */
#include "backends.h"

#include <errno.h>
#include <string.h>

#include "backend_docker.h"
#include "backend_embedded.h"
#include "backend_provisioner.h"
#include "backend_url.h"
#include "ident.h"
#include "isolation.h"

static int open_embedded(const struct options *o, struct loop *loop, struct backend **ret,
			 struct buf *why)
{
	struct embedded_config c = {
		.data = o->data,
		.no_isolation = o->no_isolation,
		.net_host = o->net_host,
		.dialect = o->dialect,
		.ready_ms = o->start_timeout_ms,
	};
	char *words CLEANUP_FREE = NULL;
	int r = o->no_isolation ? 0 : isolation_check(why);

	if (r < 0)
		return r;
	r = backend_embedded_new(loop, &c, ret, &words);
	if (r < 0)
		buf_printf(why, "cannot run sandboxes here: %s", words ?: strerrordesc_np(-r));
	return r;
}

static int open_url(const struct options *o, struct loop *loop, struct backend **ret,
		    struct buf *why)
{
	char id[IDENT_ID_LEN + 1];
	const char *words = NULL;
	struct url_config c = {
		.sandbox = { .url = o->url,
			     .root = o->root,
			     .label = o->thread,
			     .bearer = o->bearer,
			     .api_key = o->api_key,
			     .cacert = o->cacert,
			     .insecure = o->insecure },
		.user = o->user,
		.thread = o->thread,
		.id = id,
	};
	int r;

	ident_make(o->user, o->thread, id);
	r = backend_url_new(loop, &c, ret, &words);
	if (r < 0)
		buf_printf(why, "%s: %s", o->url, words ?: strerrordesc_np(-r));
	return r;
}

static int open_provisioner(const struct options *o, struct loop *loop, struct backend **ret,
			    struct buf *why)
{
	const struct deerflow *d = &o->deerflow;
	struct provisioner_mount *mounts CLEANUP_FREE = calloc(d->nmounts + 1, sizeof(*mounts));
	char *said CLEANUP_FREE = NULL;
	const char *words = NULL;
	struct backend *b = NULL;
	struct provisioner_config c = {
		.url = o->url,
		.api_key = d->provisioner_key,
		.cacert = o->cacert,
		.insecure = o->insecure,
		.mounts = mounts,
		.nmounts = d->nmounts,
	};
	int r;

	if (!mounts)
		return -ENOMEM;
	for (size_t i = 0; i < d->nmounts; i++)
		mounts[i] = (struct provisioner_mount){
			.host_path = d->mounts[i].host_path,
			.container_path = d->mounts[i].container_path,
			.read_only = d->mounts[i].read_only,
		};
	r = backend_provisioner_new(loop, &c, &b, &words);
	if (r == 0)
		r = backend_provisioner_check(b, &said);
	if (r < 0) {
		buf_printf(why, "%s: %s", o->url, said ?: words ?: strerrordesc_np(-r));
		backend_free(b);
		return r;
	}
	*ret = b;
	return 0;
}

static int open_docker(const struct options *o, struct loop *loop, struct backend **ret,
		       struct buf *why)
{
	const struct deerflow *d = &o->deerflow;
	struct docker_mount *mounts CLEANUP_FREE = calloc(d->nmounts + 1, sizeof(*mounts));
	struct docker_env *env CLEANUP_FREE = calloc(d->nenvironment + 1, sizeof(*env));
	char *words CLEANUP_FREE = NULL;
	struct docker_config c = {
		.engine = o->engine,
		.image = o->image,
		.prefix = o->prefix,
		.network = o->network,
		.port = o->port,
		.mounts = mounts,
		.nmounts = d->nmounts,
		.environment = env,
		.nenvironment = d->nenvironment,
		.data = o->data,
		.no_thread_mounts = d->thread_data_mounts == THREAD_MOUNTS_NO,
		.root = o->root,
	};
	int r;

	if (!mounts || !env)
		return -ENOMEM;
	for (size_t i = 0; i < d->nmounts; i++)
		mounts[i] = (struct docker_mount){
			.source = d->mounts[i].host_path,
			.target = d->mounts[i].container_path,
			.read_only = d->mounts[i].read_only,
		};
	for (size_t i = 0; i < d->nenvironment; i++)
		env[i] = (struct docker_env){
			.name = d->environment[i].name,
			.value = d->environment[i].value,
		};
	r = backend_docker_new(loop, &c, ret, &words);
	if (r < 0)
		buf_puts(why, words ?: strerrordesc_np(-r));
	return r;
}

int backends_open(const struct options *o, struct loop *loop, struct backend **ret, struct buf *why)
{
	static int (*const open[])(const struct options *, struct loop *, struct backend **,
				   struct buf *) = {
		[SOURCE_EMBEDDED] = open_embedded,
		[SOURCE_URL] = open_url,
		[SOURCE_DOCKER] = open_docker,
		[SOURCE_PROVISIONER] = open_provisioner,
	};

	return open[o->source](o, loop, ret, why);
}
