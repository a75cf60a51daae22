/*
 * What an engine for containers answers: JSON of one or of several of them, why it refused
 * something, an image on its way. The first byte is added to 400 for the status.
 */
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "answer.h"
#include "docker_answer.h"
#include "ident.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PORTS = 100, FIRST_PORT = 8080 };

static void check_printable(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		assert((unsigned char)text[i] >= 0x20 && text[i] != 0x7f);
}

static void check_container(int r, struct container *c)
{
	const char *id;

	assert(r == 0 || r == -EBADMSG);
	if (r < 0)
		return;
	assert(c->key && *c->key && strspn(c->key, "0123456789abcdefABCDEF") == strlen(c->key));
	assert(c->name && c->port <= 65535);
	assert(!(c->running && c->unborn));
	assert(isfinite(c->created));
	/* whose it is: all of it or nothing, and nothing that leads elsewhere */
	assert(!c->user == !c->thread && !c->user == !c->maker);
	assert(!c->user || (ident_is_user(c->user) && ident_is_thread(c->thread)));
	id = container_id(c->name, "threadfs");
	assert(!id || (*id && strspn(id, "0123456789abcdef") == strlen(id)));
	container_release(c);
}

static void read_json(char *text, size_t len)
{
	cJSON *root CLEANUP_JSON = NULL;
	struct container c = { 0 };
	bool taken[PORTS] = { false };
	const cJSON *item;

	if (json_parse(text, len, &root, NULL) < 0)
		return;
	check_container(container_from_inspect(root, &c), &c);
	check_container(container_from_list(root, &c), &c);
	cJSON_ArrayForEach (item, root)
		check_container(container_from_list(item, &c), &c);
	docker_mark_ports(root, FIRST_PORT, taken, PORTS);
	(void)docker_api(answer_str(root, "ApiVersion"), answer_str(root, "MinAPIVersion"), 41);
}

/* Only what says so proves that one is gone, or an image is not there. */
static void read_refusal(const char *words, int status)
{
	enum docker_refusal why = docker_refusal(status, words);

	assert(why <= DOCKER_BUSY);
	assert(why != DOCKER_NO_IMAGE || status == 404);
	assert(why != DOCKER_GONE || status == 404 ||
	       (status == 500 && strstr(words, "no such container")));
}

static void read_progress(char *text)
{
	struct docker_progress p = { 0 };
	struct buf shown CLEANUP_BUF = BUF_INIT(0);
	char *save = NULL;

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		docker_progress_line(&p, line, strlen(line));
	assert(p.nlayers <= DOCKER_LAYERS_MAX);
	docker_progress_put(&p, &shown);
	assert(!shown.error);
	check_printable(shown.data, shown.len);
	if (p.error)
		check_printable(p.error, strlen(p.error));
	docker_progress_release(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text CLEANUP_FREE = malloc(size + 1), *copy CLEANUP_FREE = malloc(size + 1);

	assert(text && copy);
	if (size < 1)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	memcpy(copy, text, size);
	read_refusal(text, 400 + data[0]);
	assert(isfinite(docker_time(text)));
	read_json(copy, size - 1);
	read_progress(text);
	return 0;
}
