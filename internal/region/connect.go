// SPDX-License-Identifier: Apache-2.0

package region

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/slipway-k8s/slipway/internal/region/network"
)

// ConnectOptions configures Connect.
type ConnectOptions struct {
	// CacheDir is the cache directory of the region.
	CacheDir string
	// To is the private address of a machine, and a port.
	To netip.AddrPort
	// In is sent to the machine, and what it sends is written to Out.
	In  io.Reader
	Out io.Writer
}

// Connect connects two streams to a port of a machine, as a client inside of the machine would. It needs root, and returns
// when the machine has closed the connection. ssh uses it as a proxy command.
func Connect(ctx context.Context, o ConnectOptions) error {
	s, err := loadSettings(regionPaths{o.CacheDir})
	if err != nil {
		return err
	}

	n, err := network.New(network.Options{RegionID: s.ID})
	if err != nil {
		return err
	}

	conn, err := n.DialMachine(ctx, o.To)
	if err != nil {
		return err
	}

	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends the copies
	defer stop()

	go func() {
		_, _ = io.Copy(conn, o.In) // the other direction reports a broken connection
		_ = conn.CloseWrite()
	}()

	if _, err := io.Copy(o.Out, conn); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("read from %s: %w", o.To, err)
	}

	return nil
}
