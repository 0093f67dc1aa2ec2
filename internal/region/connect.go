// SPDX-License-Identifier: Apache-2.0

package region

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/network"
)

// Connect connects in and out to a port of the machine with a private address, as a client inside of the machine would.
// It needs root, and returns when the machine has closed the connection. ssh uses it as a proxy command.
func Connect(ctx context.Context, cacheDir string, to netip.AddrPort, in io.Reader, out io.Writer) error {
	s, err := loadSettings(regionPaths{cacheDir})
	if err != nil {
		return err
	}

	n, err := network.New(network.Options{RegionID: s.ID, Clock: time.Now})
	if err != nil {
		return err
	}

	conn, err := n.DialMachine(ctx, to)
	if err != nil {
		return err
	}

	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends the copies
	defer stop()

	go func() {
		_, _ = io.Copy(conn, in) // the other direction reports a broken connection
		_ = conn.CloseWrite()
	}()

	if _, err := io.Copy(out, conn); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("read from %s: %w", to, err)
	}

	return nil
}
