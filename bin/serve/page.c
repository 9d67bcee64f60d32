/* page.c - the page, its looks and its program: three files of bin/serve/page,
 * linked into the program as they are. */
#include <string.h>

#include "bin/serve/routes.h"

extern const char page_html[], page_html_end[], page_css[], page_css_end[],
    page_js[], page_js_end[];

void route_page(struct call *c)
{
    if (!strcmp(c->path, "/page.css"))
        call_text(c, "text/css; charset=utf-8", page_css,
                  (size_t)(page_css_end - page_css));
    else if (!strcmp(c->path, "/page.js"))
        call_text(c, "text/javascript; charset=utf-8", page_js,
                  (size_t)(page_js_end - page_js));
    else
        call_text(c, "text/html; charset=utf-8", page_html,
                  (size_t)(page_html_end - page_html));
}
