package doctor

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// process is one of ours, by its pages.
type process struct {
	ops   string
	left  string // the file that says where they are
	about About
	here  bool          // on this machine: its files can be read
	trip  time.Duration // of the question
	ahead time.Duration // its clock before ours, to within half of trip
	ready []string      // lines of /readyz
	fleet *fleetPage    // of doors and pickers
	err   error         // why it says nothing of itself
	old   bool          // it has pages, and none of itself
}

// is says that it plays one of these roles.
func (p *process) is(roles ...string) bool { return slices.Contains(roles, p.about.Role) }

// where names it in findings.
func (p *process) where() string {
	switch {
	case p.about.Role == "" && p.left != "":
		return p.ops + " of " + p.left
	case p.about.Role == "":
		return p.ops
	}
	if p.about.Spoke == "" {
		return p.about.Role + " " + p.about.Name
	}
	return p.about.Role + " " + p.about.Spoke + "/" + p.about.Name
}

// flag is what it was told; paths are absolute.
func (p *process) flag(name string) string { return p.about.Flags[name] }

// path is a file or a folder that it was told of, as it is found from here; empty: none.
func (p *process) path(name string) string {
	v := p.flag(name)
	if v != "" && !filepath.IsAbs(v) {
		v = filepath.Join(p.about.Folder, v)
	}
	if strange(v) {
		return ""
	}
	return v
}

// mostFile bounds a file that is read, in bytes.
const mostFile = 1 << 20

// strange says that it is a device or a pipe, which may be read for ever, or too large. It may be named by who is not what it says.
func strange(file string) bool {
	st, err := os.Stat(file)
	return err == nil && !st.IsDir() && (!st.Mode().IsRegular() || st.Size() > mostFile)
}

// fleetPage is what doctor reads of /fleet.
type fleetPage struct {
	Door      string
	Envoy     bool `json:"envoy_connected"`
	Endpoints []struct {
		Name              string
		Workers, Pickable int
	}
	Workers []workerLine
}

type workerLine struct {
	Name, Endpoint, State, Reason, Engine, Version, Address, Index, Role string

	Pickable    bool
	Degraded    []string
	Blocks      string `json:"blocks_address"`
	BlockSize   uint32 `json:"block_size"`
	IndexReason string `json:"index_reason"`
	Ranks       uint32
}

// discover finds what t leaves open: processes by the files in a folder, workers and Envoys by what doors say.
func (e *exam) discover(ctx context.Context) {
	asked := slices.Clone(e.Ops)
	for _, dir := range e.Dirs {
		asked = append(asked, e.opsOf(dir)...)
	}
	e.ask(ctx, asked)
	var more []string // pages of shims that stand in folders of their own
	for _, p := range e.processes {
		if p.here {
			more = append(more, e.opsOf(p.path("dir"))...)
		}
	}
	e.ask(ctx, more)
	admins := slices.Clone(e.Admin)
	for _, p := range e.processes {
		if p.is("door") && p.flag("admin") != "" && (p.here || !onLoopback(p.flag("admin"))) {
			admins = append(admins, socketOr(p.flag("admin")))
		}
	}
	e.askGateways(ctx, unique(admins))
	if len(e.processes)+len(e.gateways) == 0 && e.Kube == "" {
		e.found("nothing-found", "doctor", "no process has left its address in %s", strings.Join(runFolders(e.Dirs), ", "))
	}
}

// runFolders are where processes leave their addresses.
func runFolders(dirs []string) (list []string) {
	for _, dir := range dirs {
		list = append(list, filepath.Join(dir, "run"))
	}
	return list
}

// socketOr writes an absolute path as the address of a socket.
func socketOr(address string) string {
	if strings.HasPrefix(address, "/") {
		return "unix:" + address
	}
	return address
}

// opsOf are the addresses that processes have left in a role's folder.
func (e *exam) opsOf(dir string) (list []string) {
	if dir == "" {
		return nil
	}
	files, _ := filepath.Glob(filepath.Join(dir, "run", "*.ops"))
	for _, f := range append(files, filepath.Join(dir, "run", "ops"), filepath.Join(dir, "hub", "run", "ops")) { // the last: of `up`
		if data, err := os.ReadFile(f); err == nil {
			at := strings.TrimSpace(string(data))
			e.left[at] = f
			list = append(list, at)
		}
	}
	return list
}

// ask adds the processes at these addresses that are not known yet.
func (e *exam) ask(ctx context.Context, addresses []string) {
	var waiting sync.WaitGroup
	for _, at := range unique(addresses) {
		if slices.ContainsFunc(e.processes, func(p *process) bool { return p.ops == at }) {
			continue
		}
		p := &process{ops: at, left: e.left[at], here: isHere(at)}
		e.processes = append(e.processes, p)
		waiting.Go(func() { p.introduce(ctx) })
	}
	waiting.Wait()
	var each []*process // one that has two addresses is one
	for _, p := range e.processes {
		if p.err != nil || !slices.ContainsFunc(each, p.same) {
			each = append(each, p)
		}
	}
	e.processes = each
}

// same says that another is this process, by all that it says of itself.
func (p *process) same(other *process) bool {
	a, b := p.about, other.about
	return other.err == nil && a.Role == b.Role && a.Spoke == b.Spoke && a.Name == b.Name && a.Folder == b.Folder && maps.Equal(a.Flags, b.Flags)
}

// introduce asks a process who it is.
func (p *process) introduce(ctx context.Context) {
	before := time.Now()
	p.err = getJSON(ctx, p.ops, "/about", &p.about)
	p.trip = time.Since(before)
	ready, err := get(ctx, p.ops, "/readyz")
	if err == nil {
		p.ready = few(strings.Split(strings.TrimSpace(string(ready.body)), "\n"), mostLines)
	}
	if p.err != nil {
		p.old = err == nil
		return
	}
	p.ahead = p.about.At.Sub(before.Add(p.trip / 2))
	if p.is("door", "epp") {
		var page fleetPage
		if err := getJSON(ctx, p.ops, "/fleet", &page); err == nil {
			page.Workers, page.Endpoints = few(page.Workers, mostWorkers), few(page.Endpoints, mostWorkers)
			p.fleet = &page
		}
	}
}

// Bounds of what is believed of one process: each worker is asked, each line that is bad is printed.
const (
	mostLines   = 500
	mostWorkers = 4096 // as many as a fleet may have
)

func few[T any](list []T, most int) []T { return list[:min(len(list), most)] }

// of gives the processes of these roles that have said who they are.
func (e *exam) of(roles ...string) (list []*process) {
	for _, p := range e.processes {
		if p.err == nil && p.is(roles...) {
			list = append(list, p)
		}
	}
	return list
}

func unique(list []string) (out []string) {
	for _, s := range list {
		if s != "" && !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
