#!/bin/sh
# Goal    The page at / works in a browser: it asks for the key, streams, folds
#         thoughts, stops, tries again, by keyboard; nothing comes from outside,
#         its policy holds; it fits a phone, in light and dark.
# Method  headless Chromium, told what to do by page.mjs; screenshots are left
#         in the build folder.
what='the page'
. tests/tap.sh
CHROME=$(command -v chromium || command -v chromium-browser ||
         command -v google-chrome)
if [ -z "$CHROME" ]; then
    echo "1..1"
    skip "$what" "no chromium"
    exit 0
fi
. tests/serve/npm.sh
node tests/serve/page.mjs "$S" "$D" "$CHROME" "${npm%/npm}"
