// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// hostClientAddr is the address of the host for targets that see the addresses of clients. It is from the same
// reserved range as serviceAddr.
func hostClientAddr() netip.Addr { return netip.AddrFrom4([4]byte{198, 18, 0, 2}) }

// clientAddr returns the address of a load balancer's client for targets that see it.
func clientAddr(client *net.TCPConn) (netip.Addr, error) {
	peer, err := netip.ParseAddrPort(client.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}, fmt.Errorf("read the client's address: %w", err)
	}

	if peer.Addr().IsLoopback() {
		return hostClientAddr(), nil
	}

	return peer.Addr().Unmap(), nil
}

// dialTarget connects to a target inside the VPC, so that the target's security groups apply. from is a node's
// address, or the client's if the target sees that.
func (b *loadBalancer) dialTarget(ctx context.Context, from netip.Addr, to netip.AddrPort) (*net.TCPConn, error) {
	if !from.IsValid() {
		return nil, fmt.Errorf("dial %s: load balancer has no address inside the VPC", to)
	}

	d := net.Dialer{
		LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0)),
		Control:   setForwarding(b.mark()),
	}

	var c *net.TCPConn
	err := inNamespace(b.ns, func() error {
		conn, err := d.DialContext(ctx, "tcp4", to.String())
		if err != nil {
			return err
		}

		c, _ = conn.(*net.TCPConn)

		return nil
	})

	return c, err
}

// setForwarding returns a function that prepares a socket for a connection to a target. The socket may use an
// address that the router does not have; the mark tells the rules which load balancer it is. The kernel chooses
// the source port when the target is known: otherwise all targets share one range of source ports.
func setForwarding(mark uint32) func(string, string, syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) error {
		var setErr error
		err := raw.Control(func(fd uintptr) {
			setErr = errors.Join(
				unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1),
				unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark)),
			)
		})

		return errors.Join(err, setErr)
	}
}
