#!/usr/bin/env bash
# The report in headless Chromium: the committed records, rendered anew, light, dark and as wide as a phone. Every plot has
# marks within its bounds, nothing is wider than the page, nothing comes from anywhere else. The pictures are left to look
# at in target/report.
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v chromium > /dev/null || { echo "chromium is not installed (ci/install-packages)"; exit 77; }
cargo build -q -p sluice
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "report: $*" >&2; exit 1; }

mkdir "$dir/records"
for record in docs/results/*-lab-*/*.json; do cp "$record" "$dir/records/"; done
target/debug/sluice lab report --out "$dir/records" > "$dir/said"
page=$dir/records/report.html
plots=$(grep -c "<svg class='chart'" "$page")
[ "$plots" -gt 10 ] || fail "$plots plots: expected those of all experiments"

# The page forbids itself to load anything; a script is let in that looks at it, at what it tried to load, and says so in a
# line of the document.
policy="default-src 'none'; style-src 'unsafe-inline'"
grep -q "Content-Security-Policy' content=\"$policy\"" "$page" || fail "the page may load something"
cat > "$dir/look.js" <<'JS'
addEventListener('load', () => {
const inside = (a, b) => a.left >= b.left - 1 && a.right <= b.right + 1 && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
const bare = [], astray = [];
for (const svg of document.querySelectorAll('svg.chart')) {
  const name = svg.getAttribute('aria-label'), frame = svg.getBoundingClientRect();
  // What is drawn in a colour of the data, but for the legend's samples.
  const marks = [...svg.querySelectorAll('circle,rect,path.line,path.bar,path[fill-opacity]')]
    .filter(mark => !(mark.getAttribute('d') || '').endsWith('h18'));
  if (!marks.some(mark => mark.getBoundingClientRect().height > 0)) bare.push(name);
  const texts = [...svg.querySelectorAll('text')];
  if (![...marks.filter(mark => !mark.matches('.bar')), ...texts].every(mark => inside(mark.getBoundingClientRect(), frame))) astray.push(name);
}
const wide = [...document.querySelectorAll('body *')]
  .filter(e => !e.closest('.wide') && !e.closest('nav') && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName);
const seen = { plots: document.querySelectorAll('svg.chart').length, bare, astray, wide, scrolls: document.documentElement.scrollWidth > innerWidth,
  asked, width: innerWidth, ground: getComputedStyle(document.body).backgroundColor };
const text = 'SEEN ' + JSON.stringify(seen);
if (parent === window) document.body.append(text); else parent.postMessage(text, '*');
});
JS
{
    sed -e "s|$policy|&; script-src 'unsafe-inline'|" -e "s|<title>|<script>const asked = [];\\
        addEventListener('securitypolicyviolation', event => asked.push(event.blockedURI));</script>&|" -e 's|</body></html>||' "$page"
    echo '<script>'
    cat "$dir/look.js"
    echo '</script></body></html>'
} > "$dir/look.html"

# A window is never as narrow as a phone; a frame in it may be.
cat > "$dir/phone.html" <<'HTML'
<!doctype html><script>addEventListener('message', event => document.body.append(event.data));</script>
<body><iframe src="look.html" style="width:390px;height:3000px;border:0"></iframe></body>
HTML

# browse NAME PAGE ARGS…: in a network of its own without a way out.
browse() {
    timeout --kill-after=5 240 unshare -n chromium --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
        --disable-background-networking --disable-component-update --disable-sync --hide-scrollbars \
        --user-data-dir="$(mktemp -d -p "$dir")" "${@:3}" "file://$2" 2> "$dir/$1.log"
}
mkdir -p target/report
# look NAME LOOKER WIDTH SCHEME GROUND: scheme 0 is dark, 1 light.
look() {
    local seen
    browse "$1" "$dir/$2.html" --virtual-time-budget=3000 --blink-settings=preferredColorScheme="$4" --window-size="$3,3000" --dump-dom > "$dir/$1.dom" \
        || fail "$1: chromium: $(tail -3 "$dir/$1.log")"
    seen=$(grep -o 'SEEN {.*}' "$dir/$1.dom" | head -1)
    [ "$seen" = "SEEN {\"plots\":$plots,\"bare\":[],\"astray\":[],\"wide\":[],\"scrolls\":false,\"asked\":[],\"width\":$3,\"ground\":\"$5\"}" ] \
        || fail "$1: $seen"
    browse "$1" "$page" --blink-settings=preferredColorScheme="$4" --window-size="$3,3000" \
        --screenshot="$PWD/target/report/$1.png" || fail "$1: chromium: $(tail -3 "$dir/$1.log")"
    [ "$(od -An -tu4 --endian=big -j16 -N4 "target/report/$1.png" | tr -d ' ')" = "$3" ] || fail "$1: no picture of that width"
}
# What is wrong is noticed: a picture from elsewhere, a line that is too wide.
sed -e 's|</h1>|&<img src="http://192.0.2.1/x.png">|' \
    -e 's|<main>|&<p style="width:2000px">wide</p>|' "$dir/look.html" > "$dir/wrong.html"
browse wrong "$dir/wrong.html" --virtual-time-budget=3000 --window-size=600,3000 --dump-dom > "$dir/wrong.dom" || fail "wrong: chromium: $(tail -3 "$dir/wrong.log")"
grep -q 'SEEN.*"wide":\["P"\],"scrolls":true,"asked":\["http://192.0.2.1/x.png"\]' "$dir/wrong.dom" \
    || fail "what is wrong was not noticed: $(grep -o 'SEEN {.*}' "$dir/wrong.dom")"

look light look 1200 1 'rgb(255, 255, 255)'
look dark look 1200 0 'rgb(22, 24, 27)'
look phone phone 390 1 'rgb(255, 255, 255)'
cmp -s target/report/light.png target/report/dark.png && fail "dark is as light"
echo "report: $plots plots, light, dark and 390 pixels wide"
