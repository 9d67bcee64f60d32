/* page_files.c - the bytes of bin/serve/page, read by the assembler. */
#define FILE_BYTES(name, path) \
    __asm__(".section .rodata\n" \
            ".global " #name "\n.global " #name "_end\n" \
            ".balign 16\n" #name ":\n.incbin \"" path "\"\n" \
            #name "_end:\n.byte 0\n.previous\n")

FILE_BYTES(page_html, "bin/serve/page/page.html");
FILE_BYTES(page_css, "bin/serve/page/page.css");
FILE_BYTES(page_js, "bin/serve/page/page.js");
