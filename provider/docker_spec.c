/*
 * See docker_spec.h: what deer-flow says with
 *
 *	docker run --security-opt seccomp=unconfined --rm -p BIND:PORT:8080 --name NAME
 *		-e K=V --mount type=bind,src=…,dst=…,readonly IMAGE
 *
 * and labels that say whose it is.
 */
#include "docker_spec.h"

#include <stdio.h>
#include <string.h>

#include "docker_answer.h"
#include "jsonw.h"

const char *docker_env_value(const struct docker_env *e)
{
	const char *value = e->value;

	if (value && value[0] == '$')
		value = getenv(value + 1);
	return value ?: "";
}

void docker_put_env_names(struct buf *to, const struct docker_env *env, size_t n)
{
	for (size_t i = 0; i < n; i++)
		buf_printf(to, "%s%s", i > 0 ? " " : "", env[i].name);
}

static void put_environment(struct jw *w, const struct docker_spec *s)
{
	jw_key(w, "Env");
	jw_arr(w);
	for (size_t i = 0; i < s->nenvironment; i++) {
		struct buf both CLEANUP_BUF = BUF_INIT(0);

		buf_printf(&both, "%s=%s", s->environment[i].name,
			   docker_env_value(&s->environment[i]));
		if (both.error)
			w->out->error = both.error;
		else
			jw_strn(w, both.data, both.len);
		if (both.data)
			explicit_bzero(both.data, both.len);
	}
	jw_arr_end(w);
}

static void put_mount(struct jw *w, const char *source, const char *target, bool read_only)
{
	jw_obj(w);
	jw_kstr(w, "Type", "bind");
	jw_kstr(w, "Source", source);
	jw_kstr(w, "Target", target);
	jw_kbool(w, "ReadOnly", read_only);
	jw_obj_end(w);
}

/* Two at one place would be refused; who wrote the configuration knew what he wanted there. */
static bool is_configured(const struct docker_spec *s, const char *target)
{
	for (size_t i = 0; i < s->nmounts; i++)
		if (strcmp(s->mounts[i].target, target) == 0)
			return true;
	return false;
}

static void put_mounts(struct jw *w, const struct docker_spec *s)
{
	static const struct {
		const char *below, *target;
		bool read_only;
	} dirs[] = {
		{ "user-data/workspace", "/mnt/user-data/workspace", false },
		{ "user-data/uploads", "/mnt/user-data/uploads", false },
		{ "user-data/outputs", "/mnt/user-data/outputs", false },
		{ "acp-workspace", "/mnt/acp-workspace", true },
	};

	jw_key(w, "Mounts");
	jw_arr(w);
	for (size_t i = 0; s->thread_dir && i < ARRAY_SIZE(dirs); i++) {
		struct buf source CLEANUP_BUF = BUF_INIT(0);

		if (is_configured(s, dirs[i].target))
			continue;
		buf_printf(&source, "%s/%s", s->thread_dir, dirs[i].below);
		if (source.error)
			w->out->error = source.error;
		else
			put_mount(w, source.data, dirs[i].target, dirs[i].read_only);
	}
	for (size_t i = 0; i < s->nmounts; i++)
		put_mount(w, s->mounts[i].source, s->mounts[i].target, s->mounts[i].read_only);
	jw_arr_end(w);
}

static void put_ports(struct jw *w, const struct docker_spec *s)
{
	char port[16];

	snprintf(port, sizeof(port), "%u", s->port);
	jw_key(w, "PortBindings");
	jw_obj(w);
	jw_key(w, "8080/tcp");
	jw_arr(w);
	jw_obj(w);
	jw_kstr(w, "HostIp", s->bind_host);
	jw_kstr(w, "HostPort", port);
	jw_obj_end(w);
	jw_arr_end(w);
	jw_obj_end(w);
}

int docker_put_spec(struct buf *to, const struct docker_spec *s)
{
	struct jw w;

	jw_init(&w, to);
	jw_obj(&w);
	jw_kstr(&w, "Image", s->image);
	put_environment(&w, s);
	jw_key(&w, "ExposedPorts");
	jw_obj(&w);
	jw_key(&w, "8080/tcp");
	jw_obj(&w);
	jw_obj_end(&w);
	jw_obj_end(&w);
	jw_kint(&w, "StopTimeout", s->stop_timeout_s);
	jw_key(&w, "Labels");
	jw_obj(&w);
	jw_kstr(&w, DOCKER_LABEL_USER, s->user);
	jw_kstr(&w, DOCKER_LABEL_THREAD, s->thread);
	jw_kstr(&w, DOCKER_LABEL_MAKER, s->maker);
	jw_obj_end(&w);
	jw_key(&w, "HostConfig");
	jw_obj(&w);
	jw_kbool(&w, "AutoRemove", true);
	jw_key(&w, "SecurityOpt");
	jw_arr(&w);
	jw_str(&w, "seccomp=unconfined");
	jw_arr_end(&w);
	if (s->network)
		jw_kstr(&w, "NetworkMode", s->network);
	put_ports(&w, s);
	put_mounts(&w, s);
	jw_obj_end(&w);
	jw_obj_end(&w);
	return to->error;
}
