package docs

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// word is an expression that users no longer read, and what they read instead.
type word struct {
	old   *regexp.Regexp
	right string
}

// glossary are the words of earlier pages, most of them for things that the field has a word for.
var glossary = compile(
	`(freez(e|es|ing)|froze|frozen)`, "checkpoint, or pause",
	`br(ing|ings|inging|ought) back (a|the) pods?`, "restore",
	`go(es)? on where`, "resume from the snapshot",
	`made (again|anew)`, "recreated",
	`start(s|ed|ing)? anew`, "cold start, or start again",
	`anew`, "again",
	`ahead of need`, "prefetch, or in the background",
	`processor time`, "CPU time",
	`processors?( limits?)?`, "CPU",
	`thousandths?`, "millicores",
	`taken over`, "compromised, or adopted",
	`whoever`, "anyone who, or the name of the role",
	`somebody`, "a user, or the name of the role",
	`nobody`, "no one, or the name of the role",
	`let go`, "delete, or release",
	`come(s)? of age`, "expire",
	`tried again`, "retry",
	`given up`, "time out, or cancel",
	`duties`, "cluster-wide tasks",
	`files alone`, "files-only",
	`falls? asleep|falling asleep|fell asleep`, "go to sleep, enter sleep",
	`comes? to nothing`, "fail",
	`for ever`, "forever",
	`see to it`, "make sure",
	`shall`, "must, or will",
	`need not`, "does not have to",
	`(no|any) more`, "no longer",
	`but for`, "except",
	`(bear|bears|bore)`, "have, or carry",
	`by its own word`, "by its own report",
	`to be had`, "available",
	`(he|his|him)`, "they, or the name of the role",
	`besides`, "also, or in addition",
	`likewise`, "in the same way",
	`under way`, "in progress, running",
	`is away`, "is unavailable",
	`are away`, "are unavailable",
	`up to where`, "the limit until which",
	`far away`, "remote",
	`in turns`, "interleaved",
	`wants? for|for want of`, "lack",
	`lies? on`, "is on",
)

// pageGlossary are further words of pages. In what programs say they stand beside names of the API that have them, such
// as the annotation diapause.dev/not-swept.
var pageGlossary = append(compile(
	`sweeps?|swept|sweeping`, "garbage collection, collect",
), glossary...)

// compile returns pairs of an expression and the right word.
func compile(pairs ...string) (all []word) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, word{regexp.MustCompile(`(?i)\b(` + pairs[i] + `)\b`), pairs[i+1]})
	}
	return all
}

// role is a sentence that begins with "Who" and is no question.
var role = regexp.MustCompile(`(^|[.:] )Who (may|can|has|takes|loses)\b[^?]*$`)

// oldWords returns the words of texts that are no longer in use, with the right ones.
func oldWords(texts []string, glossary []word) (found []string) {
	for _, s := range texts {
		for _, w := range glossary {
			for _, m := range w.old.FindAllStringIndex(s, -1) {
				found = append(found, fmt.Sprintf("write %q for %q: …%s…", w.right, s[m[0]:m[1]], around(s, m)))
			}
			s = w.old.ReplaceAllString(s, "X")
		}
		if m := role.FindStringIndex(s); m != nil {
			found = append(found, fmt.Sprintf("write who it is for %q", around(s, m)))
		}
	}
	return found
}

// around returns a match with some of what stands beside it.
func around(s string, m []int) string {
	const beside = 30
	return s[max(0, m[0]-beside):min(len(s), m[1]+beside)]
}

// TestUserTexts: what programs say to users has the words of the glossary: help, errors, logs, events, conditions, and
// the descriptions that kubectl explain shows.
func TestUserTexts(t *testing.T) {
	var texts []string
	for _, dir := range []string{"cmd", "agent", "cri", "runsc", "storage"} {
		eachFile(t, dir, func(f *ast.File) { texts = append(texts, literals(f)...) })
	}
	if len(texts) < 1000 {
		t.Fatalf("%d texts", len(texts))
	}
	for _, found := range oldWords(slices.Concat(texts, descriptions(t)), glossary) {
		t.Error(found)
	}
}

// literals returns a file's texts of several words.
func literals(f *ast.File) (all []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		if b, ok := n.(*ast.BasicLit); ok && b.Kind == token.STRING {
			if s, err := strconv.Unquote(b.Value); err == nil && strings.Count(strings.TrimSpace(s), " ") > 1 {
				all = append(all, s)
			}
		}
		return true
	})
	return all
}

// descriptions returns those of the fields of our objects.
func descriptions(t *testing.T) (all []string) {
	t.Helper()
	for _, crd := range definitions(t) {
		eachField(crd, func(_ string, f *field) { all = append(all, f.Description) })
	}
	return all
}
