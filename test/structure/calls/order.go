package calls

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// graph has, for each node, those that it has arrows to.
type graph [][]int

const (
	// maxExact is the number of nodes up to which the best order of a component is found for certain.
	maxExact = 18
	// shakes is how often the order of a larger component is disturbed, to find a better one.
	shakes = 300
)

// order returns the nodes in an order with few arrows back up. The same graph has the same order each time.
func (g graph) order() []int {
	var all []int
	for _, c := range g.components() {
		within := g.within(c)
		var order []int
		if len(c) <= maxExact {
			order = within.exact()
		} else {
			order = within.search(shakes)
		}
		for _, n := range order {
			all = append(all, c[n])
		}
	}
	return all
}

// components returns the strongly connected components, those that have arrows to others before these.
func (g graph) components() (all [][]int) {
	var stack []int
	index, low, on := make([]int, len(g)), make([]int, len(g)), make([]bool, len(g))
	next := 1
	var visit func(n int)
	visit = func(n int) {
		index[n], low[n], on[n] = next, next, true
		next++
		stack = append(stack, n)
		for _, to := range g[n] {
			if index[to] == 0 {
				visit(to)
				low[n] = min(low[n], low[to])
			} else if on[to] {
				low[n] = min(low[n], index[to])
			}
		}
		if low[n] != index[n] {
			return
		}
		var c []int
		for done := false; !done; {
			last := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			on[last], done = false, last == n
			c = append(c, last)
		}
		slices.Sort(c)
		all = append(all, c)
	}
	for n := range g {
		if index[n] == 0 {
			visit(n)
		}
	}
	slices.Reverse(all)
	return all
}

// within returns the part of g between some nodes, which get the numbers of their places among nodes.
func (g graph) within(nodes []int) graph {
	part := make(graph, len(nodes))
	for i, n := range nodes {
		for _, to := range g[n] {
			if j, ok := slices.BinarySearch(nodes, to); ok {
				part[i] = append(part[i], j)
			}
		}
	}
	return part
}

// exact returns an order with the fewest arrows back up. For each set of nodes that may come first it finds which of
// them is best the last.
func (g graph) exact() []int {
	out := make([]uint, len(g))
	for n := range g {
		for _, to := range g[n] {
			out[n] |= 1 << to
		}
	}
	sets := uint(1) << len(g)
	up, last := make([]int, sets), make([]int, sets)
	for set := uint(1); set < sets; set++ {
		up[set] = math.MaxInt
		for n := range g {
			before := set &^ (1 << n)
			if before == set {
				continue
			}
			if k := up[before] + bits.OnesCount(out[n]&before); k < up[set] {
				up[set], last[set] = k, n
			}
		}
	}
	order := make([]int, 0, len(g))
	for set := sets - 1; set != 0; set &^= 1 << last[set] {
		order = append(order, last[set])
	}
	slices.Reverse(order)
	return order
}

// search returns a good order: it begins with a greedy one, and improves it until no move of one node does. Then it
// moves some nodes by chance and tries again, as often as told.
func (g graph) search(shakes int) []int {
	best := g.improve(g.greedy())
	least := g.up(best)
	chance := rand.New(rand.NewPCG(1, uint64(len(g))))
	for range shakes {
		order := slices.Clone(best)
		for range 2 + len(g)/8 {
			i, j := chance.IntN(len(g)), chance.IntN(len(g))
			move(order, i, j)
		}
		order = g.improve(order)
		if n := g.up(order); n <= least {
			best, least = order, n
		}
	}
	return best
}

// greedy takes the node whose arrows to those left exceed those from them most, again and again.
func (g graph) greedy() []int {
	left, order := make([]int, len(g)), make([]int, 0, len(g))
	for n := range left {
		left[n] = n
	}
	for len(left) > 0 {
		best, most := 0, math.MinInt
		for i, n := range left {
			excess := 0
			for _, m := range left {
				excess += g.arrow(n, m) - g.arrow(m, n)
			}
			if excess > most {
				best, most = i, excess
			}
		}
		order = append(order, left[best])
		left = slices.Delete(left, best, best+1)
	}
	return order
}

// improve moves single nodes to where they have the fewest arrows back up, until no move helps.
func (g graph) improve(order []int) []int {
	for better := true; better; {
		better = false
		for i := range order {
			n := order[i]
			to, gain := i, 0
			for j, change := i-1, 0; j >= 0; j-- {
				change += g.arrow(order[j], n) - g.arrow(n, order[j])
				if -change > gain {
					to, gain = j, -change
				}
			}
			for j, change := i+1, 0; j < len(order); j++ {
				change += g.arrow(n, order[j]) - g.arrow(order[j], n)
				if -change > gain {
					to, gain = j, -change
				}
			}
			if gain > 0 {
				move(order, i, to)
				better = true
			}
		}
	}
	return order
}

// move puts the element at i to j.
func move(order []int, i, j int) {
	n := order[i]
	if i < j {
		copy(order[i:j], order[i+1:j+1])
	} else {
		copy(order[j+1:i+1], order[j:i])
	}
	order[j] = n
}

// arrow returns 1 if there is an arrow, otherwise 0.
func (g graph) arrow(from, to int) int {
	if _, ok := slices.BinarySearch(g[from], to); ok {
		return 1
	}
	return 0
}

// up returns how many arrows go back up in an order.
func (g graph) up(order []int) (n int) {
	place := places(order)
	for from := range g {
		for _, to := range g[from] {
			if place[to] < place[from] {
				n++
			}
		}
	}
	return n
}

// places returns each node's place in an order.
func places(order []int) []int {
	place := make([]int, len(order))
	for i, n := range order {
		place[n] = i
	}
	return place
}
