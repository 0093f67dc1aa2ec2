// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/machine/addon"
	"github.com/slipway-k8s/slipway/internal/machine/imdsguard"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/nft"
)

const (
	// guardFile is the ruleset that nft loads.
	guardFile = "/run/slipway/metadata.nft"
	// guardInterval is how soon a restarted program of the allowed control groups reaches the metadata service.
	guardInterval = 5 * time.Second
	// guardTimeout limits the check that the rules do not refuse the agent itself.
	guardTimeout = 2 * time.Second
)

// newMetadataGuard returns the guard of a real machine.
func newMetadataGuard(root *HostFS, program *nft.Program) *imdsguard.Guard {
	return &imdsguard.Guard{
		Root: root.Dir,
		Port: join.Port,
		Load: func(ctx context.Context, ruleset string) error {
			if _, err := root.Write(File{Path: guardFile, Body: []byte(ruleset), Mode: 0o600}); err != nil {
				return err
			}

			_, err := program.Run(ctx, "-f", guardFile)

			return err
		},
		List: func(ctx context.Context) (string, error) {
			return program.Run(ctx, "--stateless", "list", "table", "inet", "slipway_metadata")
		},
		Reach: func(ctx context.Context) error {
			address := net.JoinHostPort(imdsguard.AddressIPv4, "80")
			connection, err := (&net.Dialer{Timeout: guardTimeout, Control: markMetadata}).DialContext(ctx, "tcp4", address)
			if err != nil {
				return fmt.Errorf("connect to the instance metadata service: %w", err)
			}

			return connection.Close()
		},
	}
}

// markMetadata marks a socket that connects to the instance metadata service, for rules that cannot match control groups. Without the
// right to mark it, which the agent has, it stays as it is.
func markMetadata(_, address string, socket syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host != imdsguard.AddressIPv4 && host != imdsguard.AddressIPv6 {
		return nil //nolint:nilerr // dialing reports it
	}

	return socket.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, imdsguard.Mark)
	})
}

// guardMetadata lets only the agent and the control groups of the node document reach the metadata
// service, and only the agent the join endpoint.
func (a *Agent) guardMetadata(ctx context.Context) error {
	if a.GuardMetadata == nil {
		return nil
	}

	allowed := imdsguard.Allowed{Cgroups: a.doc.MetadataCgroups, PodNetwork: a.doc.Network.PodCIDR}
	if a.doc.HasVPCPods() { // they have addresses as machines have
		allowed.PodNetwork = ""
		allowed.PodLinks = addon.VPCPodLinks
	}

	return a.GuardMetadata(ctx, allowed)
}
