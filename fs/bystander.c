/* See bystander.h. */
#include "bystander.h"

#include <string.h>

bool bystander_asks_for(const char *name)
{
	static const char *const names[] = {
		/* git, going up to find a repository, a bare one included */
		"HEAD",
		"objects",
		"refs",
		"config",
		"hooks",
		"packed-refs",
		"commondir",
		/* other version control */
		"CVS",
		"RCS",
		"SCCS",
		"_darcs",
		"_FOSSIL_",
		"_MTN",
		/* editors' and shells' indexes */
		"tags",
		"TAGS",
		"GTAGS",
		"GPATH",
		"GRTAGS",
		"cscope",
		/* build tools, going up to find a project */
		"Makefile",
		"makefile",
		"GNUmakefile",
		"BUILD",
		"WORKSPACE",
		"Dockerfile",
		"Vagrantfile",
		"Jenkinsfile",
		"Rakefile",
		"Gemfile",
		"Pipfile",
		"node_modules",
		"__pycache__",
		/* desktops, and systems that index or scan */
		"lost-found",
		"RECYCLER",
		"Recycled",
		"DCIM",
		"BDMV",
		"VIDEO_TS",
		"AUDIO_TS",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}
