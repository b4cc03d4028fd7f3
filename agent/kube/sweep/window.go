package sweep

import (
	"cmp"
	"slices"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// window picks the next few snapshots after a key, in the order of their keys, from a listing in any order. So a
// listing of any length can be processed piece by piece.
type window struct {
	after snapshot.Key // zero: from the beginning
	most  int
	all   []storage.Listed
}

func (w *window) add(e storage.Listed) {
	if compareKeys(e.Key, w.after) <= 0 {
		return
	}
	if w.all = append(w.all, e); len(w.all) >= 2*w.most {
		w.trim()
	}
}

func (w *window) trim() {
	slices.SortFunc(w.all, func(a, b storage.Listed) int { return compareKeys(a.Key, b.Key) })
	w.all = w.all[:min(len(w.all), w.most)]
}

// result returns what was picked, and the key after which to go on. A zero key means that nothing is left.
func (w *window) result() (picked []storage.Listed, last snapshot.Key) {
	w.trim()
	if len(w.all) == w.most {
		last = w.all[w.most-1].Key
	}
	return w.all, last
}

func compareKeys(a, b snapshot.Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}
