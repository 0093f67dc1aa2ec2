// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// DialMachine connects to a port of the machine that has a private address, from inside of the machine: security groups
// do not apply. It fails if machines in several VPCs have the address.
func (n *Network) DialMachine(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	ns, err := n.findMachine(to.Addr())
	if err != nil {
		return nil, err
	}

	defer closeHandle(ns)
	var conn *net.TCPConn
	err = inNamespace(ns, func() error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp4", to.String())
		if err != nil {
			return err
		}

		conn, _ = c.(*net.TCPConn)

		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("connect to a machine: %w", err)
	}

	return conn, nil
}

// findMachine returns the namespace of the machine with an address. The caller closes it.
func (n *Network) findMachine(addr netip.Addr) (netns.NsHandle, error) {
	ids, err := n.names.listIDs()
	if err != nil {
		return 0, err
	}

	var found []string
	for _, id := range ids {
		if isInstance(id) && hasAddress(n.names.namespacePath(id), addr) {
			found = append(found, id)
		}
	}

	if len(found) != 1 {
		return 0, fmt.Errorf("find the machine with address %s: %d machines have it, not one", addr, len(found))
	}

	ns, err := netns.GetFromPath(n.names.namespacePath(found[0]))
	if err != nil {
		return 0, fmt.Errorf("open network namespace of %s: %w", found[0], err)
	}

	return ns, nil
}

// hasAddress reports whether eth0 of a namespace has an address. A machine that is being removed has none.
func hasAddress(path string, addr netip.Addr) bool {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return false
	}

	defer closeHandle(ns)
	inside, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return false
	}

	defer inside.Close()
	eth0, err := inside.LinkByName("eth0")
	if err != nil {
		return false
	}

	own, err := inside.AddrList(eth0, netlink.FAMILY_V4)
	if err != nil {
		return false
	}

	for _, a := range own {
		if ip, ok := netip.AddrFromSlice(a.IP.To4()); ok && ip == addr {
			return true
		}
	}

	return false
}
