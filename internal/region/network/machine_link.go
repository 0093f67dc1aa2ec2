// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// EnsureNamespace returns the path of the machine's network namespace, made and wired to its VPC's router: lo and eth0 are
// up, eth0 has its MAC, its address and the default route. Calling it again for a running machine changes nothing.
// What the machine may send and receive is decided by the next Sync with its interface; until then it is nothing.
func (n *Network) EnsureNamespace(ctx context.Context, m netspec.Machine) (string, error) {
	mac, err := validateMachine(m)
	if err != nil {
		return "", err
	}

	n.mu.Lock()
	defer n.mu.Unlock()
	r, err := n.ensureRouter(ctx, m.VPC)
	if err != nil {
		return "", err
	}

	path := n.names.namespacePath(m.ID)
	ns, _, err := ensureNamespace(path)
	if err != nil {
		return "", err
	}

	defer closeHandle(ns)
	if err := r.attachMachine(ctx, ns, m, mac); err != nil {
		return "", fmt.Errorf("wire %s to %s: %w", m.ID, m.VPC, err)
	}

	return path, nil
}

// Release removes the machine's namespace and link, and ends the connections that load balancers hold to it.
// A machine that has none is no error.
func (n *Network) Release(_ context.Context, instanceID string) error {
	if !isInstance(instanceID) {
		return fmt.Errorf("release network of %q: want an instance id", instanceID)
	}

	n.mu.Lock()
	defer n.mu.Unlock()

	for _, r := range n.routers {
		for _, b := range r.listBalancers() {
			b.endConnections(instanceID)
		}
	}

	return removeNamespace(n.names.namespacePath(instanceID))
}

func validateMachine(m netspec.Machine) (net.HardwareAddr, error) {
	var errs []error
	if !isInstance(m.ID) {
		errs = append(errs, fmt.Errorf("id %q: want i- and hexadecimal digits", m.ID))
	}

	if !isVPC(m.VPC) {
		errs = append(errs, fmt.Errorf("vpc %q: want vpc- and hexadecimal digits", m.VPC))
	}

	if !m.Iface.Addr.Is4() || !m.Subnet.Contains(m.Iface.Addr) {
		errs = append(errs, fmt.Errorf("address %s is not in subnet %s", m.Iface.Addr, m.Subnet))
	}

	if !m.Gateway.Is4() || !m.Subnet.Contains(m.Gateway) {
		errs = append(errs, fmt.Errorf("gateway %s is not in subnet %s", m.Gateway, m.Subnet))
	}

	mac, err := net.ParseMAC(m.Iface.MAC)
	if err != nil {
		errs = append(errs, err)
	}

	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("network of machine %s: %w", m.ID, err)
	}

	return mac, nil
}

// attachMachine makes the veth unless it is there, and sets both of its ends.
func (r *router) attachMachine(
	ctx context.Context,
	ns netns.NsHandle,
	m netspec.Machine,
	mac net.HardwareAddr,
) error {
	inside, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}

	defer inside.Close()
	name := linkName(m.Iface.Addr)
	outer, wired, err := r.findVeth(inside, name, mac)
	if err != nil {
		return err
	}

	if !wired {
		if outer, err = r.createVeth(ns, inside, name, mac); err != nil {
			return err
		}
	}

	if err := configureMachineLink(inside, m); err != nil {
		return err
	}

	if err := r.configureRouterLink(outer, m.Iface.Addr, mac); err != nil {
		return err
	}

	return waitForCarrier(ctx, map[string]*netlink.Handle{name: r.nl, "eth0": inside})
}

// waitForCarrier waits until the kernel has noticed that both ends are up, usually a millisecond: what is sent before that is
// lost, and the first connection would cost a second.
func waitForCarrier(ctx context.Context, ends map[string]*netlink.Handle) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for name, nl := range ends {
		for {
			link, err := nl.LinkByName(name)
			if err != nil {
				return fmt.Errorf("find link %s: %w", name, err)
			}

			if link.Attrs().OperState == netlink.OperUp {
				break
			}

			if sleepContext(ctx, time.Millisecond); ctx.Err() != nil {
				return fmt.Errorf("wait for link %s to come up: %w", name, ctx.Err())
			}
		}
	}

	return nil
}

// findVeth says whether eth0 inside and the router's link are the two ends of one veth.
func (r *router) findVeth(
	inside *netlink.Handle,
	name string,
	mac net.HardwareAddr,
) (netlink.Link, bool, error) {
	outer, err := r.nl.LinkByName(name)
	if isLinkNotFound(err) {
		return nil, false, nil
	}

	if err != nil {
		return nil, false, fmt.Errorf("find link %s: %w", name, err)
	}

	eth0, err := inside.LinkByName("eth0")
	if isLinkNotFound(err) {
		return outer, false, nil
	}

	if err != nil {
		return nil, false, fmt.Errorf("find eth0: %w", err)
	}

	a := eth0.Attrs()
	same := a.ParentIndex == outer.Attrs().Index && outer.Attrs().ParentIndex == a.Index

	return outer, same && a.HardwareAddr.String() == mac.String(), nil
}

func isLinkNotFound(err error) bool { return errors.As(err, &netlink.LinkNotFoundError{}) }

// createVeth makes the veth anew; an older one of the same address or in the same machine goes.
func (r *router) createVeth(
	ns netns.NsHandle,
	inside *netlink.Handle,
	name string,
	mac net.HardwareAddr,
) (netlink.Link, error) {
	for link, nl := range map[string]*netlink.Handle{name: r.nl, "eth0": inside} {
		old, err := nl.LinkByName(link)
		if isLinkNotFound(err) {
			continue
		}

		if err == nil {
			err = nl.LinkDel(old)
		}

		if err != nil && !errors.Is(err, unix.ENODEV) {
			return nil, fmt.Errorf("remove old link %s: %w", link, err)
		}
	}

	err := r.nl.LinkAdd(&netlink.Veth{
		LinkAttrs:        netlink.LinkAttrs{Name: name, MTU: jumboMTU, HardwareAddr: routerMAC()},
		PeerName:         "eth0",
		PeerHardwareAddr: mac,
		PeerNamespace:    netlink.NsFd(ns),
		PeerMTU:          jumboMTU,
	})
	if err != nil {
		return nil, fmt.Errorf("create link %s: %w", name, err)
	}

	return r.nl.LinkByName(name)
}

// routerMAC is the same on every link: a machine's neighbour entry for its gateway outlives the link.
func routerMAC() net.HardwareAddr { return net.HardwareAddr{0x0e, 0x53, 0x4c, 0x57, 0x00, 0x01} }

// configureMachineLink configures the machine's side. It replaces only what it would set itself.
func configureMachineLink(inside *netlink.Handle, m netspec.Machine) error {
	lo, err := inside.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}

	eth0, err := inside.LinkByName("eth0")
	if err != nil {
		return fmt.Errorf("find eth0: %w", err)
	}

	for _, l := range []netlink.Link{lo, eth0} {
		if err := inside.LinkSetUp(l); err != nil {
			return fmt.Errorf("set %s up: %w", l.Attrs().Name, err)
		}
	}

	own := &net.IPNet{IP: m.Iface.Addr.AsSlice(), Mask: net.CIDRMask(m.Subnet.Bits(), 32)}
	if err := inside.AddrReplace(eth0, &netlink.Addr{IPNet: own}); err != nil {
		return fmt.Errorf("set address %s: %w", own, err)
	}

	route := netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: m.Gateway.AsSlice()}
	if err := inside.RouteReplace(&route); err != nil {
		return fmt.Errorf("set default route by %s: %w", m.Gateway, err)
	}

	return nil
}

// configureRouterLink leads the machine's address, and only it, to its link. The neighbour is fixed: it is known, and a router
// that asked would have to do so from an address the machine knows nothing of.
func (r *router) configureRouterLink(outer netlink.Link, addr netip.Addr, mac net.HardwareAddr) error {
	if err := r.nl.LinkSetUp(outer); err != nil {
		return fmt.Errorf("set %s up: %w", outer.Attrs().Name, err)
	}

	// The router answers for every address of the VPC. By default it would wait up to 0.8 s before each answer; the
	// kernel has no default for this that a namespace could set.
	quick := [][2]string{{"ipv4/neigh/" + outer.Attrs().Name + "/proxy_delay", "0"}}
	if err := inNamespace(r.ns, func() error { return writeSysctls(quick) }); err != nil {
		return err
	}

	neigh := netlink.Neigh{
		LinkIndex:    outer.Attrs().Index,
		Family:       netlink.FAMILY_V4,
		State:        netlink.NUD_PERMANENT,
		IP:           addr.AsSlice(),
		HardwareAddr: mac,
	}
	if err := r.nl.NeighSet(&neigh); err != nil {
		return fmt.Errorf("set neighbour %s: %w", addr, err)
	}

	route := netlink.Route{
		LinkIndex: outer.Attrs().Index,
		Dst:       ipNet(netip.PrefixFrom(addr, 32)),
		Scope:     netlink.SCOPE_LINK,
	}
	if err := r.nl.RouteReplace(&route); err != nil {
		return fmt.Errorf("route %s to its machine: %w", addr, err)
	}

	return nil
}
