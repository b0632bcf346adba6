package router

// link puts a node into the list by use: as the newest, or just newer than below.
func (x *predictive) link(n, below *node) {
	if below == nil {
		below = x.newest
	}
	n.older = below
	if below == nil {
		x.oldest = n
	} else {
		n.newer = below.newer
		below.newer = n
	}
	if n.newer == nil {
		x.newest = n
	} else {
		n.newer.older = n
	}
}

func (x *predictive) unlink(n *node) {
	if n.newer == nil {
		x.newest = n.older
	} else {
		n.newer.older = n.older
	}
	if n.older == nil {
		x.oldest = n.newer
	} else {
		n.older.newer = n.newer
	}
	n.newer, n.older = nil, nil
}

func (x *predictive) know(worker int) {
	for len(x.lives) <= worker {
		x.lives = append(x.lives, 0)
	}
}

// Cleared notes that the worker holds nothing any more: it is gone, or its engine began anew. Places of the life that ends are
// dropped as they are met.
func (x *predictive) Cleared(worker int) {
	x.know(worker)
	x.lives[worker]++
}
