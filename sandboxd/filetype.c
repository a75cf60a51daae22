/* See filetype.h. */
#include "filetype.h"

#include <string.h>

static const struct filetype {
	const char *name;
	const char *globs[FILETYPE_MAX_GLOBS];
} types[] = {
	{ "c", { "*.c", "*.h", "*.H", "*.cats" } },
	{ "cmake", { "*.cmake", "CMakeLists.txt" } },
	{ "config", { "*.cfg", "*.conf", "*.config", "*.ini" } },
	{ "cpp", { "*.C", "*.cc", "*.cpp", "*.cxx", "*.[hH]{,h,pp,xx}", "*.inl" } },
	{ "cs", { "*.cs" } },
	{ "css", { "*.css", "*.scss" } },
	{ "csv", { "*.csv" } },
	{ "docker", { "*Dockerfile*" } },
	{ "go", { "*.go" } },
	{ "html", { "*.htm", "*.html", "*.ejs" } },
	{ "java", { "*.java", "*.jsp", "*.jspx", "*.properties" } },
	{ "js", { "*.js", "*.jsx", "*.vue", "*.cjs", "*.mjs" } },
	{ "json", { "*.json", "composer.lock", "*.sarif" } },
	{ "kotlin", { "*.kt", "*.kts" } },
	{ "log", { "*.log" } },
	{ "lua", { "*.lua" } },
	{ "make", { "[Gg][Nn][Uu]makefile", "[Mm]akefile", "*.mk", "*.mak" } },
	{ "markdown", { "*.markdown", "*.md", "*.mdown", "*.mkdn", "*.mdx" } },
	{ "md", { "*.markdown", "*.md", "*.mdown", "*.mkdn", "*.mdx" } },
	{ "perl", { "*.perl", "*.pl", "*.PL", "*.plh", "*.plx", "*.pm", "*.t" } },
	{ "php", { "*.php", "*.php[3457]", "*.pht", "*.phtml" } },
	{ "py", { "*.py", "*.pyi" } },
	{ "python", { "*.py", "*.pyi" } },
	{ "r", { "*.R", "*.r", "*.Rmd", "*.Rnw" } },
	{ "ruby", { "*.rb", "*.rbw", "*.gemspec", "Gemfile", "Rakefile", "config.ru" } },
	{ "rust", { "*.rs" } },
	{ "scala", { "*.scala", "*.sbt" } },
	{ "sh", { "*.sh", "*.bash", "*.zsh", "*.ksh", "*.csh", ".bashrc", ".profile" } },
	{ "sql", { "*.sql", "*.psql" } },
	{ "svg", { "*.svg" } },
	{ "swift", { "*.swift" } },
	{ "tex", { "*.tex", "*.ltx", "*.cls", "*.sty", "*.bib", "*.dtx", "*.ins" } },
	{ "toml", { "*.toml", "Cargo.lock" } },
	{ "ts", { "*.ts", "*.tsx", "*.cts", "*.mts" } },
	{ "txt", { "*.txt" } },
	{ "typescript", { "*.ts", "*.tsx", "*.cts", "*.mts" } },
	{ "vue", { "*.vue" } },
	{ "xml", { "*.xml", "*.xml.dist", "*.dtd", "*.xsd", "*.xsl", "*.xslt" } },
	{ "yaml", { "*.yaml", "*.yml" } },
};

const char *const *filetype_globs(const char *name)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(types[i].name, name) == 0)
			return types[i].globs;
	return NULL;
}
