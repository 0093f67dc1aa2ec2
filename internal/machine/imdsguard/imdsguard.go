// SPDX-License-Identifier: Apache-2.0

// Package imdsguard keeps containers from the instance metadata service, and so from the role of
// their machine, and from a TCP port that only this process uses, on other machines.
//
// The hop limit of the service stops pods with a network of their own. A container in the network
// of the host is no hop away, so the guard is a set of nftables rules: packets to the service leave
// the machine only if they come from an allowed cgroup. With cgroup version 2, also next to version
// 1, the rules name the cgroups. With version 1 alone they name classes of the net_cls controller,
// which the guard gives to the processes of these cgroups.
//
// Connections to the port leave the machine only if this process opens them. The rules refuse those
// of pods with a network of their own without asking for the cgroup, and also where they arrive.
//
// The package knows neither the manifest nor the agent.
package imdsguard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// The addresses of the instance metadata service.
const (
	AddressIPv4 = "169.254.169.254"
	AddressIPv6 = "fd00:ec2::254"
)

// ErrUnsupported is returned if the kernel can neither tell the processes of one cgroup from others nor match this process's mark.
var ErrUnsupported = errors.New("the kernel has neither cgroup version 2 nor the controller net_cls, and matches no marks")

// Mark is the mark (SO_MARK) of this process's connections to the metadata service. Where the kernel cannot tell cgroups apart, only
// packets with it get there. A process needs CAP_NET_ADMIN or CAP_NET_RAW to set it, which containers do not have.
const Mark = 0x510003

// Guard keeps the rules of one machine. It is not safe for concurrent use.
type Guard struct {
	// Root is the directory that contains sys and proc: "/" on a machine.
	Root string
	// Port is the TCP port that only this process reaches, on machines and load balancers. Empty:
	// none.
	Port string
	// Load loads a ruleset into the kernel.
	Load func(ctx context.Context, ruleset string) error
	// List returns the table of the rules in the kernel, without counters; an error if there is none. Nil: the kernel
	// keeps what was loaded.
	List func(ctx context.Context) (string, error)
	// Reach connects to the service. An error that wraps ECONNREFUSED means that the rules refuse this process too.
	Reach func(ctx context.Context) error

	// loaded is the ruleset in the kernel with the identities of its cgroups; empty before the first.
	loaded string
	// listed is what List returned when they were loaded.
	listed string
	// failed are the ways of matching that refused this process.
	failed []way
}

// way is how rules match the processes of a cgroup.
type way string

const (
	byCgroup way = "socket cgroupv2"
	byClass  way = "net_cls"
	byMark   way = "mark"
)

// Classes of net_cls, and the cgroups that have them: of processes that may reach the metadata
// service, and of those of this process's cgroup, which may also reach the port.
const (
	classID       = 0x510001
	classGroup    = "slipway-metadata"
	ownClassID    = 0x510002
	ownClassGroup = "slipway-agent"
)

// Allowed says what the rules let through besides what they always do.
type Allowed struct {
	// Cgroups may reach the metadata service.
	Cgroups []string
	// PodNetwork is the address range of the pods, which use the port among themselves. While it and PodLinks are
	// empty, because they are not known yet, everybody reaches the port.
	PodNetwork string
	// PodLinks is a pattern of nft for the names of the links of this machine's pods, such as eni*. It takes the place of PodNetwork
	// where pods have addresses of the same range as machines.
	PodLinks string
}

// DefaultCgroups returns the cgroups of programs of an operating system that need the service: those of cloud-init and
// its like, of the SSM agent, of EC2 Instance Connect (in sshd), and of AWS's network scripts. None starts containers.
func DefaultCgroups() []string {
	return []string{
		"system.slice/slipway-node.service",
		"system.slice/cloud-init-local.service", "system.slice/cloud-init.service",
		"system.slice/cloud-init-main.service", "system.slice/cloud-init-network.service",
		"system.slice/cloud-config.service", "system.slice/cloud-final.service",
		"system.slice/coreos-metadata.service",
		"system.slice/amazon-ssm-agent.service",
		"system.slice/snap.amazon-ssm-agent.amazon-ssm-agent.service",
		"system.slice/ssh.service", "system.slice/sshd.service", "system.slice/system-ssh.slice",
		"system.slice/system-sshd.slice", `system.slice/system-policy\x2droutes.slice`,
		`system.slice/system-refresh\x2dpolicy\x2droutes.slice`,
	}
}

// Apply loads the rules for this process, the default cgroups and the allowed ones, if they differ
// from those that are loaded. A cgroup that does not exist is left out until it does. Where the kernel cannot tell cgroups apart, only
// packets with [Mark] reach the service. An error that wraps [ErrUnsupported] means that this process could not reach it so either:
// the rules that guard the port from pods are loaded, and no others.
func (g *Guard) Apply(ctx context.Context, allowed Allowed) error {
	port := portRules{}
	if allowed.PodNetwork != "" || allowed.PodLinks != "" {
		port = portRules{port: g.Port, pods: allowed.PodNetwork, links: allowed.PodLinks}
	}

	for {
		h, err := g.hierarchy()
		if err != nil {
			if loadErr := g.applyWithout(ctx, port); loadErr != nil {
				return fmt.Errorf("%w; %s", loadErr, err.Error()) // no [ErrUnsupported]: nothing is loaded
			}

			return err
		}

		names := slices.Concat(DefaultCgroups(), allowed.Cgroups)
		err = g.applyWith(ctx, h, names, port)
		if g.isRefused(ctx, h, err, port) {
			// The first failure may have had another cause than the kernel.
			if err = g.applyWith(ctx, h, names, port); err != nil {
				g.failed = append(g.failed, h.way)
				g.loaded = ""

				continue
			}
		}

		if !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}

		// The kernel does not match this process: for example, older ones match no cgroup of a namespace.
		g.failed = append(g.failed, h.way)
		if err := g.open(ctx); err != nil {
			return err
		}
	}
}

// loadError is an error of Load.
type loadError struct{ error }

// Unwrap returns the error of Load.
func (e loadError) Unwrap() error { return e.error }

// isRefused reports whether err says that the kernel does not take the rules of a hierarchy, such as one without nft_socket, although it
// takes those with marks, which are then loaded.
func (g *Guard) isRefused(ctx context.Context, h hierarchy, err error, port portRules) bool {
	if _, isLoad := errors.AsType[loadError](err); !isLoad || h.way == byMark {
		return false
	}

	err = g.applyWith(ctx, hierarchy{way: byMark}, nil, port)
	if errors.Is(err, syscall.ECONNREFUSED) {
		_ = g.open(ctx) // the caller returns why the rules were refused
	}

	return err == nil
}

// open removes the rules.
func (g *Guard) open(ctx context.Context) error {
	g.loaded = ""

	return g.Load(ctx, openRuleset)
}

// applyWithout loads the rules that need no cgroups.
func (g *Guard) applyWithout(ctx context.Context, port portRules) error {
	rules := openRuleset
	if port.port != "" {
		rules += "table inet slipway_metadata {\n" + port.chains() + "}\n"
	}

	if rules == g.loaded && (port.port == "" || g.isIntact(ctx)) {
		return nil
	}

	if err := g.Load(ctx, rules); err != nil {
		return err
	}

	if port.port == "" {
		g.loaded = rules
		return nil
	}

	return g.recordLoaded(ctx, rules)
}

// findAllowed returns the cgroups with these names that exist, and that of this process; none if cgroups are not matched.
func (g *Guard) findAllowed(h hierarchy, names []string) ([]cgroup, error) {
	if h.way == byMark {
		return nil, nil
	}

	own, err := g.ownCgroup(h)
	if err != nil {
		return nil, err
	}

	var out []cgroup
	for _, name := range slices.Compact(slices.Sorted(slices.Values(append(names, own)))) {
		if c, ok := h.find(name); ok {
			c.isOwn = name == own
			out = append(out, c)
		}
	}

	return out, nil
}

// applyWith loads the rules for one way of matching. An error that wraps ECONNREFUSED means that it does not work.
func (g *Guard) applyWith(ctx context.Context, h hierarchy, names []string, port portRules) error {
	allowed, err := g.findAllowed(h, names)
	if err != nil {
		return err
	}

	if h.way == byClass {
		if err := h.classify(allowed); err != nil {
			return err
		}
	}

	rules := h.ruleset(allowed, port)
	state := rules + fmt.Sprint(allowed)
	if state == g.loaded && g.isIntact(ctx) {
		return nil
	}

	if err := g.Load(ctx, rules); err != nil {
		return loadError{err}
	}

	if err := g.Reach(ctx); errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}

	return g.recordLoaded(ctx, state)
}

// recordLoaded remembers what was loaded, and what the kernel makes of it.
func (g *Guard) recordLoaded(ctx context.Context, state string) error {
	g.loaded = state
	g.listed = ""

	if g.List == nil {
		return nil
	}

	var err error
	if g.listed, err = g.List(ctx); err != nil {
		return fmt.Errorf("list the rules that guard the metadata service: %w", err)
	}

	return nil
}

// isIntact reports whether the kernel still has the rules as they were loaded. Root can remove them, also from a
// privileged container.
func (g *Guard) isIntact(ctx context.Context) bool {
	if g.List == nil {
		return true
	}

	now, err := g.List(ctx)

	return err == nil && now == g.listed
}

// hierarchy is a mounted tree of cgroups.
type hierarchy struct {
	way way
	// top is the directory of its root.
	top string
	// prefix is the path of top below /sys/fs/cgroup, where nft looks for cgroups.
	prefix string
	// classes is the root of the hierarchy of net_cls.
	classes string
	// line begins the line of /proc/self/cgroup for it.
	line string
}

// hierarchy returns the hierarchy that the rules use.
func (g *Guard) hierarchy() (hierarchy, error) {
	base := filepath.Join(g.Root, "sys/fs/cgroup")
	exists := func(name string) bool {
		_, err := os.Stat(filepath.Join(base, name))
		return err == nil
	}

	if !slices.Contains(g.failed, byCgroup) {
		switch {
		case exists("cgroup.controllers"):
			return hierarchy{way: byCgroup, top: base, line: "0::"}, nil
		case exists("unified/cgroup.procs"): // next to version 1; systemd uses both for its units
			return hierarchy{way: byCgroup, top: filepath.Join(base, "unified"), prefix: "unified", line: "0::"}, nil
		}
	}

	if !slices.Contains(g.failed, byClass) && exists("systemd/cgroup.procs") {
		for _, name := range []string{"net_cls", "net_cls,net_prio"} {
			if exists(name + "/cgroup.procs") {
				return hierarchy{
					way:     byClass,
					top:     filepath.Join(base, "systemd"),
					classes: filepath.Join(base, name),
					line:    "name=systemd:",
				}, nil
			}
		}
	}

	if !slices.Contains(g.failed, byMark) {
		return hierarchy{way: byMark}, nil
	}

	return hierarchy{}, ErrUnsupported
}

// ownCgroup returns the cgroup of this process.
func (g *Guard) ownCgroup(h hierarchy) (string, error) {
	file := filepath.Join(g.Root, "proc/self/cgroup")
	body, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("find the cgroup of this process: %w", err)
	}

	for line := range strings.Lines(string(body)) {
		if _, name, ok := strings.Cut(strings.TrimSpace(line), h.line); ok {
			return strings.Trim(name, "/"), nil
		}
	}

	return "", fmt.Errorf("find the cgroup of this process: %s has no line with %s", file, h.line)
}

// cgroup is an existing cgroup.
type cgroup struct {
	// name is its path without a leading slash.
	name string
	// inode identifies it: a restarted unit has a new cgroup with the same name.
	inode uint64
	// isOwn is set if it is that of this process.
	isOwn bool
}

// find returns a cgroup by its path; false if it does not exist. The root contains all processes and is never found.
func (h hierarchy) find(name string) (cgroup, bool) {
	if name == "" || path.Clean("/"+name) != "/"+name {
		return cgroup{}, false
	}

	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(h.top, name), &st); err != nil {
		return cgroup{}, false
	}

	return cgroup{name: name, inode: st.Ino}, true
}

// classify gives the classes to the processes of the allowed cgroups. Processes that they start
// later inherit them.
func (h hierarchy) classify(allowed []cgroup) error {
	for group, id := range map[string]int{classGroup: classID, ownClassGroup: ownClassID} {
		class := filepath.Join(h.classes, group)
		if err := os.Mkdir(class, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("create the class of the metadata service: %w", err)
		}

		err := os.WriteFile(filepath.Join(class, "net_cls.classid"), []byte(strconv.Itoa(id)), 0o600)
		if err != nil {
			return fmt.Errorf("set the class of the metadata service: %w", err)
		}
	}

	own := ""
	for _, c := range allowed {
		if c.isOwn {
			own = filepath.Join(h.top, c.name)
		}
	}

	for _, c := range allowed {
		if err := h.classifyProcesses(c, own); err != nil {
			return err
		}
	}

	return nil
}

// classifyProcesses gives the class of a cgroup to its processes, without those of this process's
// cgroup, which have a class of their own.
func (h hierarchy) classifyProcesses(c cgroup, own string) error {
	member := filepath.Join(h.classes, classGroup, "cgroup.procs")
	if c.isOwn {
		member = filepath.Join(h.classes, ownClassGroup, "cgroup.procs")
	}

	return filepath.WalkDir(filepath.Join(h.top, c.name), func(at string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil // it has ended
		}

		if at == own && !c.isOwn {
			return fs.SkipDir
		}

		body, err := os.ReadFile(filepath.Join(at, "cgroup.procs"))
		if err != nil {
			return nil // it has ended
		}

		for pid := range strings.FieldsSeq(string(body)) {
			err := os.WriteFile(member, []byte(pid), 0o600)
			if err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf(
					"allow process %s of %s to reach the metadata service: %w",
					pid,
					c.name,
					err,
				)
			}
		}

		return nil
	})
}

// openRuleset removes the rules. The first line creates the table, so that the second can delete it.
const openRuleset = `table inet slipway_metadata
delete table inet slipway_metadata
`

// ruleset returns the rules that let only the allowed cgroups reach the service, and only this
// process the port; with marks, the port is guarded from pods only. Addresses are compared after the translation of Services, so an endpoint with
// the address of the service is refused too.
func (h hierarchy) ruleset(allowed []cgroup, port portRules) string {
	var b strings.Builder
	b.WriteString(openRuleset + `table inet slipway_metadata {
	chain output {
		type filter hook output priority -10; policy accept;
		ip daddr ` + AddressIPv4 + ` jump guard
		ip6 daddr ` + AddressIPv6 + ` jump guard
`)

	if port.port != "" && h.way != byMark {
		b.WriteString(port.outputRules())
	}

	b.WriteString("\t}\n\n\tchain guard {\n" + h.acceptRules(allowed) + "\t\tcounter reject\n\t}\n")

	if port.port != "" && h.way != byMark {
		b.WriteString("\n\tchain join {\n")
		for _, c := range allowed {
			if c.isOwn {
				b.WriteString(h.acceptRule(c))
			}
		}

		b.WriteString("\t\tcounter " + refusePort + "\n\t}\n")
	}

	if port.port != "" {
		b.WriteString("\n" + port.chains())
	}

	b.WriteString("}\n")

	return b.String()
}

// acceptRules returns the rules that accept the packets of those that may reach the service.
func (h hierarchy) acceptRules(allowed []cgroup) string {
	switch h.way {
	case byMark:
		return fmt.Sprintf("\t\tmeta mark %d accept\n", Mark)
	case byClass:
		return fmt.Sprintf("\t\tmeta cgroup { %d, %d } accept\n", classID, ownClassID)
	case byCgroup:
	}

	var b strings.Builder
	for _, c := range allowed {
		b.WriteString(h.acceptRule(c))
	}

	return b.String()
}

// acceptRule returns the rule that accepts the packets of a cgroup, with its own class if classes
// are used.
func (h hierarchy) acceptRule(c cgroup) string {
	if h.way == byClass {
		return fmt.Sprintf("\t\tmeta cgroup %d accept\n", ownClassID)
	}

	level := strings.Count(c.name, "/") + 1

	return fmt.Sprintf("\t\tsocket cgroupv2 level %d \"%s\" accept\n", level, path.Join(h.prefix, c.name))
}
