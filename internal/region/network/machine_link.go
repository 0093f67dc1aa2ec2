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

// EnsureNamespace returns the path of the machine's network namespace. It creates the namespace and
// connects it to its VPC's router: lo and eth0 are up, and eth0 has its MAC address, its IP
// address, and the default route. It is idempotent. All traffic of the machine is blocked until a
// Sync includes its interface.
func (n *Network) EnsureNamespace(ctx context.Context, m netspec.Machine) (string, error) {
	mac, err := validateMachine(m)
	if err != nil {
		return "", err
	}

	n.syncMu.Lock()
	defer n.syncMu.Unlock()
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
		return "", fmt.Errorf("connect %s to %s: %w", m.ID, m.VPC, err)
	}

	if err := n.connectInterfaces(r, append([]netspec.Interface{m.Iface}, m.More...)); err != nil {
		return "", err
	}

	return path, nil
}

// Release removes the machine's namespace and link. Packets to its address are lost from then on. It
// succeeds if there is nothing to remove.
func (n *Network) Release(_ context.Context, instanceID string) error {
	if !isInstance(instanceID) {
		return fmt.Errorf("release network of %q: not an instance id", instanceID)
	}

	n.syncMu.Lock()
	defer n.syncMu.Unlock()

	return removeNamespace(n.names.namespacePath(instanceID))
}

func validateMachine(m netspec.Machine) (net.HardwareAddr, error) {
	var errs []error
	if !isInstance(m.ID) {
		errs = append(errs, fmt.Errorf("id %q: must be i- and hexadecimal digits", m.ID))
	}

	if !isVPC(m.VPC) {
		errs = append(errs, fmt.Errorf("vpc %q: must be vpc- and hexadecimal digits", m.VPC))
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

// attachMachine creates the veth pair if it does not exist, and configures both ends.
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
	outer, err := r.ensureVeth(ns, inside, vethEnds{name, primaryDevice, mac})
	if err != nil {
		return err
	}

	if err := configureMachineLink(inside, m); err != nil {
		return err
	}

	if err := r.configureRouterLink(outer, m.Iface.Addr, mac); err != nil {
		return err
	}

	return waitForCarrier(ctx, map[string]*netlink.Handle{name: r.nl, primaryDevice: inside})
}

// primaryDevice is the link of a machine's primary network interface.
const primaryDevice = "eth0"

// vethEnds are the names of the two ends of a veth pair, the router's and the machine's, and the MAC address of the latter.
type vethEnds struct {
	outer, device string
	mac           net.HardwareAddr
}

// ensureVeth returns the router's end of a veth pair, which it creates if it does not exist.
func (r *router) ensureVeth(ns netns.NsHandle, inside *netlink.Handle, e vethEnds) (netlink.Link, error) {
	outer, wired, err := r.findVeth(inside, e)
	if err != nil || wired {
		return outer, err
	}

	return r.createVeth(ns, inside, e)
}

// waitForCarrier waits until the kernel reports that both ends are up, usually 1 ms. Packets sent
// earlier are lost, which would delay the first connection by a second.
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

// findVeth returns the router's link, and whether it and the machine's link are the ends of one veth pair.
func (r *router) findVeth(inside *netlink.Handle, e vethEnds) (netlink.Link, bool, error) {
	outer, err := r.nl.LinkByName(e.outer)
	if isLinkNotFound(err) {
		return nil, false, nil
	}

	if err != nil {
		return nil, false, fmt.Errorf("find link %s: %w", e.outer, err)
	}

	inner, err := inside.LinkByName(e.device)
	if isLinkNotFound(err) {
		return outer, false, nil
	}

	if err != nil {
		return nil, false, fmt.Errorf("find %s: %w", e.device, err)
	}

	a := inner.Attrs()
	same := a.ParentIndex == outer.Attrs().Index && outer.Attrs().ParentIndex == a.Index

	return outer, same && a.HardwareAddr.String() == e.mac.String(), nil
}

func isLinkNotFound(err error) bool { return errors.As(err, &netlink.LinkNotFoundError{}) }

// createVeth creates the veth pair. It first removes older links with the same name or in the same
// machine.
func (r *router) createVeth(ns netns.NsHandle, inside *netlink.Handle, e vethEnds) (netlink.Link, error) {
	for link, nl := range map[string]*netlink.Handle{e.outer: r.nl, e.device: inside} {
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
		LinkAttrs:        netlink.LinkAttrs{Name: e.outer, MTU: jumboMTU, HardwareAddr: routerMAC()},
		PeerName:         e.device,
		PeerHardwareAddr: e.mac,
		PeerNamespace:    netlink.NsFd(ns),
		PeerMTU:          jumboMTU,
	})
	if err != nil {
		return nil, fmt.Errorf("create link %s: %w", e.outer, err)
	}

	return r.nl.LinkByName(e.outer)
}

// routerMAC is the same on every link, because a machine's neighbour entry for its gateway outlives
// the link.
func routerMAC() net.HardwareAddr { return net.HardwareAddr{0x0e, 0x53, 0x4c, 0x57, 0x00, 0x01} }

// configureMachineLink configures the machine's end. It does not remove other addresses or routes.
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

// configureRouterLink routes the machine's address, and only it, to its link. The neighbour entry
// is static: the router knows it, and ARP requests would come from an address that the machine does
// not know.
func (r *router) configureRouterLink(outer netlink.Link, addr netip.Addr, mac net.HardwareAddr) error {
	if err := r.nl.LinkSetUp(outer); err != nil {
		return fmt.Errorf("set %s up: %w", outer.Attrs().Name, err)
	}

	// The router answers ARP for every address of the VPC. By default the kernel delays each reply
	// by up to 0.8 s, and it has no per-namespace default for this setting.
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
		return fmt.Errorf("add route for %s: %w", addr, err)
	}

	return nil
}
