# The browser tests need Chromium. Installs Debian's where we may, else says how.

for name in chromium chromium-browser google-chrome; do
    command -v "$name" >/dev/null && exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing Chromium for the browser tests …"
    apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null \
        && exit 0
fi
echo "No Chromium: the browser tests are skipped. (Debian: sudo apt-get install chromium)"
