// embed.cc - the same from C++: embed FOLDER TEXT
#include <sluice.h>

#include <cstdio>
#include <memory>
#include <string>

int main(int argc, char **argv)
{
    sluice *opened = nullptr;
    sluice_error error{};
    sluice_options options{};
    options.size = sizeof options;
    options.context = 256;
    if (argc != 3 || sluice_open(&opened, argv[1], &options, &error)) {
        std::fprintf(stderr, "embed: %s\n", argc == 3 ? error.text : "usage");
        return 1;
    }
    std::unique_ptr<sluice, decltype(&sluice_close)> s(opened, sluice_close);
    std::string prompt = argv[2], answer;
    sluice_ids ids{};
    sluice_tokenize(sluice_text_of(s.get()), prompt.data(), prompt.size(),
                    &ids);
    sluice_request request{};
    request.size = sizeof request;
    request.ids = ids.ids;
    request.count = static_cast<uint32_t>(ids.count);
    request.max_ids = 8;
    request.ignore_end = true;
    request.arg = &answer;
    request.token = [](void *to, const sluice_token *t) {
        static_cast<std::string *>(to)->append(t->text, t->bytes);
        return false;
    };
    int err = sluice_generate(s.get(), &request, &error);
    sluice_ids_free(&ids);
    std::fwrite(answer.data(), 1, answer.size(), stdout);
    return err != 0;
}
