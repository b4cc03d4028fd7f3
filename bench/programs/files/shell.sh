# A shell with jobs: some sleep, one has a compiler at work, whose output must always be the same.
mkdir -p /data
cd /data
cat > program.c <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int compare(const void *a, const void *b) { return strcmp(*(char **)a, *(char **)b); }
int main(int argc, char **argv) {
  qsort(argv + 1, argc - 1, sizeof *argv, compare);
  for (int i = 1; i < argc; i++) printf("%d %s\n", i, argv[i]);
}
END
compile() { gcc -O2 -o "$1" program.c && "./$1" d c b a > "$1.out"; }
compile first || exit 1
sums() { cat "$1" "$1.out" | sha256sum; }
jobs_at_work() {
  while :; do
    compile again || echo "the compiler has failed" >> wrong
    [ "$(sums first)" = "$(sums again)" ] || echo "the compiler has made something else" >> wrong
  done
}
jobs_at_work > /dev/null 2>> errors &
for i in 1 2 3 4 5 6 7 8; do while :; do sleep 0.$i; done & done
: > stream0
: > stream1

chain() {
  local h=2166136261 n
  while read -r n; do h=$(((h * 16777619 ^ n) & 0xffffffff)); done < "$1"
  echo "$(wc -l < "$1") $h"
}
check() {
  if [ -s wrong ]; then cat wrong; else echo $(chain stream0) $(chain stream1) $(sums first | cut -c1-64); fi
}
while read -r what stream n; do
  case $what in
    w) echo "$n" >> "stream$stream" && echo ok ;;
    c) check ;;
    *) echo ok ;;
  esac
done
