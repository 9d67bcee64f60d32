#!/bin/sh
# Goal    The official clients of OpenAI and Anthropic work with sluice serve
#         as they are: chats, streams, tools, files, batches, responses,
#         messages; errors are their typed exceptions; an abort frees rows.
# Method  openai and @anthropic-ai/sdk of npm, their versions locked beside
#         this, with a Node that they support, in the build folder: clients.mjs.
what='the official clients'
. tests/tap.sh
. tests/serve/npm.sh
cp tests/serve/clients.mjs "$npm" # beside its packages
for id in a b; do
    printf '{"custom_id":"%s","method":"POST","url":"/v1/chat/completions",' $id
    printf '"body":{"model":"model","max_tokens":12,"messages":[{"role":"user"'
    printf ',"content":"Hello"}]}}\n'
done > "$D/lines"
node "$npm/clients.mjs" "$S" "$D"
