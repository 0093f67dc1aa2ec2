// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

const (
	// formerServerLooks bounds how often the agent looks whether the API server of before a restoration has been told to end.
	formerServerLooks = 40
	// formerServerPause is the pause between two looks.
	formerServerPause = 250 * time.Millisecond
	// formerServerTimeout limits one look.
	formerServerTimeout = time.Second
)

// formerAPIServer is the API server that served the data of before a restoration of etcd. The kubelet tells it to end, and gives
// it 30 seconds. It uses them all: it waits for requests that it has sent to the former etcd. Meanwhile it accepts no connections,
// and nothing that it still does is of use, so the agent kills it.
type formerAPIServer struct {
	agent *Agent
	found bool
	pid   int
	// listens reports whether the API server accepts connections.
	listens func(context.Context) bool
}

// newFormerAPIServer finds the API server that runs now.
func newFormerAPIServer(a *Agent) formerAPIServer {
	p, found := findAPIServer(a)

	return formerAPIServer{agent: a, found: found, pid: p.pid, listens: isListening}
}

func findAPIServer(a *Agent) (process, bool) {
	c := a.kubeConfig()
	c.EtcdURL = etcd.ClientURL

	return findProcess(a.Root, kube.StaticPodCommands(c)[kube.APIServer])
}

// isListening reports whether the API server of this machine accepts connections.
func isListening(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, formerServerTimeout)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", kube.APIPort))
	if err != nil {
		return false
	}

	_ = c.Close()

	return true
}

// end kills the former API server as soon as the kubelet has told it to end, which it shows by accepting no connections. If that
// is not seen, the kubelet kills it in its own time: killed before, it would only be started again as it was.
func (f formerAPIServer) end(ctx context.Context) error {
	if !f.found {
		return nil
	}

	for range formerServerLooks {
		if now, runs := findAPIServer(f.agent); !runs || now.pid != f.pid {
			return nil
		}

		if !f.listens(ctx) {
			f.agent.Log.Info("ending the API server of before the restoration", slog.Int("pid", f.pid))
			if _, err := f.agent.Run.Run(ctx, "kill", "-KILL", strconv.Itoa(f.pid)); err != nil {
				return fmt.Errorf("end the API server of before the restoration: %w", err)
			}

			return nil
		}

		if err := f.agent.Wait(ctx, formerServerPause); err != nil {
			return err
		}
	}

	return nil
}
