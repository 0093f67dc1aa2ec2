// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// A starting API server listens before it has read the RBAC rules, and answers 403 to requests that are
// allowed. Its /readyz fails in that time, but a load balancer notices a restart too late, and sends requests to
// targets that are not healthy if no other is left. So the agent rejects new connections from other machines
// until its API server authorizes requests. See docs/design/0011-api-gate.md.

const (
	gateInterval = 500 * time.Millisecond
	// gateCheckTimeout limits the check of an API server that starts.
	gateCheckTimeout = 2 * time.Second
	// gateGrace is how long an API server that authorizes requests waits for what others write: its address
	// in the endpoints of the Service kubernetes, and the rules of administrators.
	gateGrace = 20 * time.Second
	// gateFile is the ruleset that nft loads.
	gateFile = "/run/slipway/api-gate.nft"
	// gateCheckFile is the ruleset that nft checks before the machine runs containers.
	gateCheckFile = "/run/slipway/api-gate-check.nft"
)

// apiGate rejects connections of other machines to an API server that is not ready. It opens once for each
// process of the API server, and stays open when a ready API server becomes unready later.
type apiGate struct {
	agent *Agent
	// listener returns the identity of the socket that listens at the API's port; empty if there is none.
	listener func() string
	// check returns how far the API server has started.
	check func(context.Context) apiReadiness
	// load loads a ruleset into the kernel.
	load func(ctx context.Context, ruleset string) error

	// openFor is the listener that was ready; empty if the gate is closed.
	openFor string
	// authorizedAt is when the present listener authorized requests first; zero before.
	authorizedAt time.Time
	// pending is the listener that is being waited for.
	pending string
	// loaded is the ruleset in the kernel; empty before the first.
	loaded string
	// failures to load a ruleset.
	failures failureLog
}

func newAPIGate(a *Agent) *apiGate {
	server := apiServerCheck{api: a.newAdminClient(), address: a.instance.Address.String()}

	return &apiGate{
		agent:    a,
		listener: func() string { return findAPIListener(a.Root) },
		check:    server.readiness,
		load:     func(ctx context.Context, ruleset string) error { return loadRuleset(ctx, a, ruleset) },
		failures: failureLog{agent: a, task: gateTask},
	}
}

// keepUntilDone keeps the gate until ctx ends, and leaves it open.
func (g *apiGate) keepUntilDone(ctx context.Context) error {
	defer func() {
		openCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), gateCheckTimeout)
		defer cancel()
		g.setRuleset(openCtx, openRuleset)
	}()

	for {
		g.step(ctx)
		if err := g.agent.Wait(ctx, gateInterval); err != nil {
			return err
		}
	}
}

// step looks at the listener once and opens or closes the gate.
func (g *apiGate) step(ctx context.Context) {
	listener := g.listener()
	if listener != "" && listener == g.openFor {
		return
	}

	if listener != g.pending {
		g.pending = listener
		g.authorizedAt = time.Time{}
	}

	// After a restart of the agent, the API server usually runs and is ready: it is checked before the gate is
	// closed.
	if g.loaded != "" || listener == "" {
		g.close(ctx)
	}

	if listener == "" || !g.mayOpen(ctx) {
		g.close(ctx)
		return
	}

	g.openFor = listener
	g.setRuleset(ctx, openRuleset)
	g.agent.apiOpen.Store(true)
}

// mayOpen reports whether the present API server may get connections.
func (g *apiGate) mayOpen(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, gateCheckTimeout)
	defer cancel()
	readiness := g.check(ctx)
	if readiness == apiStarting {
		return false
	}

	if g.authorizedAt.IsZero() {
		g.authorizedAt = g.agent.Now()
	}

	return readiness == apiServes || g.agent.Now().Sub(g.authorizedAt) >= gateGrace
}

func (g *apiGate) close(ctx context.Context) {
	g.openFor = ""
	g.agent.apiOpen.Store(false)
	g.setRuleset(ctx, closedRuleset)
}

// setRuleset loads a ruleset unless it is loaded. A failure leaves the port as it was, and is reported: an API
// server that answers wrongly for a second is better than none.
func (g *apiGate) setRuleset(ctx context.Context, ruleset string) {
	if g.loaded == ruleset {
		return
	}

	err := g.load(ctx, ruleset)
	g.failures.note(err)
	g.loaded = ruleset
	if err != nil {
		g.loaded = gateFailed
	}
}

// gateFailed is the state after a ruleset was not loaded, so that it is tried again.
const gateFailed = "failed"

// gateTask is the name under which failures of the gate are reported.
const gateTask = "API gate"

// The rulesets replace each other: the first line creates the table, so that the second can delete it. Only the
// first packet of a connection is rejected. Programs of the machine itself use the loopback interface.
const (
	openRuleset = `table inet slipway_api_gate
delete table inet slipway_api_gate
`
	closedRuleset = openRuleset + `table inet slipway_api_gate {
	chain input {
		type filter hook input priority -10; policy accept;
		iifname != "lo" tcp dport ` + kube.APIPort + ` tcp flags & (syn | ack) == syn reject with tcp reset
	}
}
`
)

// loadRuleset loads a ruleset with nft(8).
func loadRuleset(ctx context.Context, a *Agent, ruleset string) error {
	if a.Nft == nil {
		return nil
	}

	if _, err := a.Root.Write(File{Path: gateFile, Body: []byte(ruleset), Mode: 0o600}); err != nil {
		return err
	}

	_, err := a.Nft.Run(ctx, "-f", gateFile)

	return err
}

// checkGate checks that the kernel takes the rules of the gate, and loads none.
func checkGate(ctx context.Context, a *Agent) error {
	if _, err := a.Root.Write(File{Path: gateCheckFile, Body: []byte(closedRuleset), Mode: 0o600}); err != nil {
		return err
	}

	_, err := a.Nft.Run(ctx, "--check", "-f", gateCheckFile)

	return err
}

// findAPIListener returns the inode of the socket that listens at the port of the API server, or "". Another process has another
// socket.
func findAPIListener(root *HostFS) string {
	for _, name := range []string{"/proc/net/tcp6", "/proc/net/tcp"} {
		f, err := os.Open(root.Path(name))
		if err != nil {
			continue
		}

		// The kernel prints listening sockets before all others.
		head, err := io.ReadAll(io.LimitReader(f, 64<<10))
		_ = f.Close() // only read
		if err != nil {
			continue
		}

		if inode := parseListener(string(head), kube.APIPort); inode != "" {
			return inode
		}
	}

	return ""
}

// parseListener finds a listening socket in the text of /proc/net/tcp.
func parseListener(table, port string) string {
	const listening = "0A"
	var number int
	if _, err := fmt.Sscanf(port, "%d", &number); err != nil {
		return ""
	}

	suffix := fmt.Sprintf(":%04X", number)
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) > 9 && fields[3] == listening && strings.HasSuffix(fields[1], suffix) {
			return fields[9]
		}
	}

	return ""
}
