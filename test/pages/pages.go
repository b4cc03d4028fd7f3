// Package pages reads the blocks of code of the documentation, so that tests run them as they stand.
package pages

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"
)

// Block is a fenced block of code.
type Block struct {
	// Page is the path of its page in the repository.
	Page string
	// Line is the number of its first line on the page, from 1 on.
	Line int
	// Language is what follows the fence, such as sh.
	Language string
	// Text ends with a newline, and is not indented by the list that the block may stand in.
	Text string
}

// Blocks returns the blocks of a page, in their order. root is the directory of the repository.
func Blocks(root, page string) ([]Block, error) {
	source, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return nil, err
	}
	var blocks []Block
	tree := goldmark.DefaultParser().Parse(text.NewReader(source))
	err = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if code, ok := n.(*ast.FencedCodeBlock); ok && entering && code.Lines().Len() > 0 {
			blocks = append(blocks, Block{
				Page: page, Line: 1 + strings.Count(string(source[:code.Lines().At(0).Start]), "\n"),
				Language: string(code.Language(source)), Text: string(code.Lines().Value(source)),
			})
		}
		return ast.WalkContinue, nil
	})
	return blocks, err
}

// Find returns the one block of a page that begins so. That none or several do is an error: then the page has changed,
// and so must its test.
func Find(root, page, begins string) (Block, error) {
	blocks, err := Blocks(root, page)
	if err != nil {
		return Block{}, err
	}
	var found []Block
	for _, b := range blocks {
		if strings.HasPrefix(b.Text, begins) {
			found = append(found, b)
		}
	}
	if len(found) != 1 {
		return Block{}, fmt.Errorf("%s has %d blocks that begin with %q", page, len(found), begins)
	}
	return found[0], nil
}

// Replace returns the text of the block with each pair's first string replaced by its second. What does not occur is
// an error, as with [Find].
func (b Block) Replace(pairs ...string) (string, error) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if !strings.Contains(b.Text, pairs[i]) {
			return "", fmt.Errorf("%s:%d: the block has no %q", b.Page, b.Line, pairs[i])
		}
	}
	return strings.NewReplacer(pairs...).Replace(b.Text), nil
}

// Text returns the text of the one block of a page that begins so, with each pair's first string replaced by its
// second. It ends the test if there is none: see [Find] and [Block.Replace].
func Text(t testing.TB, root, page, begins string, pairs ...string) string {
	t.Helper()
	b, err := Find(root, page, begins)
	if err != nil {
		t.Fatal(err)
	}
	text, err := b.Replace(pairs...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
