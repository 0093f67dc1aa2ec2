// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// flannelSubnet is the content of flanneld's subnet file.
type flannelSubnet struct {
	// networks are the ranges of all pods of the cluster.
	networks []netip.Prefix
	// subnets are the ranges of the pods on this machine.
	subnets []netip.Prefix
	mtu     int
	// masq is set if flanneld masquerades, so that the delegated plugin must not.
	masq bool
}

// readSubnet reads flanneld's subnet file of NAME=value lines.
func readSubnet(path string) (flannelSubnet, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return flannelSubnet{}, fmt.Errorf("read flannel's subnet file (is flanneld running?): %w", err)
	}

	s, err := parseSubnet(string(raw))
	if err != nil {
		return flannelSubnet{}, fmt.Errorf("parse flannel's subnet file %s: %w", path, err)
	}

	return s, nil
}

func parseSubnet(text string) (flannelSubnet, error) {
	var (
		s    flannelSubnet
		errs []error
	)
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			continue
		}

		var err error
		switch name {
		case "FLANNEL_NETWORK", "FLANNEL_IPV6_NETWORK":
			s.networks, err = appendPrefixes(s.networks, value)
		case "FLANNEL_SUBNET", "FLANNEL_IPV6_SUBNET":
			s.subnets, err = appendPrefixes(s.subnets, value)
		case "FLANNEL_MTU":
			s.mtu, err = strconv.Atoi(value)
		case "FLANNEL_IPMASQ":
			s.masq, err = strconv.ParseBool(value)
		}

		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}

	if len(s.networks) == 0 {
		errs = append(errs, errors.New("FLANNEL_NETWORK is missing"))
	}

	if len(s.subnets) == 0 {
		errs = append(errs, errors.New("FLANNEL_SUBNET is missing"))
	}

	if s.mtu <= 0 {
		errs = append(errs, errors.New("FLANNEL_MTU is missing"))
	}

	return s, errors.Join(errs...)
}

// appendPrefixes appends the comma-separated ranges in value to list. flanneld writes a subnet as
// its gateway's address.
func appendPrefixes(list []netip.Prefix, value string) ([]netip.Prefix, error) {
	for part := range strings.SplitSeq(value, ",") {
		p, err := netip.ParsePrefix(part)
		if err != nil {
			return list, err
		}

		list = append(list, p.Masked())
	}

	return list, nil
}

// delegateConfig returns the configuration of the delegated plugin: defaults, overridden by
// c.Delegate, and the name, version, and ranges.
func delegateConfig(c pluginConfig, s flannelSubnet) map[string]any {
	conf := map[string]any{"type": "bridge", "mtu": s.mtu, "ipMasq": !s.masq}
	maps.Copy(conf, c.Delegate)
	if pluginType(conf) == "bridge" {
		if _, set := conf["isGateway"]; !set {
			conf["isGateway"] = true
		}
	}

	conf["name"] = c.Name
	conf["cniVersion"] = c.CNIVersion
	if len(c.RuntimeConfig) > 0 {
		conf["runtimeConfig"] = c.RuntimeConfig
	}

	var ranges, routes []any
	for _, p := range s.subnets {
		ranges = append(ranges, []any{map[string]any{"subnet": p.String()}})
	}

	for _, p := range s.networks {
		routes = append(routes, map[string]any{"dst": p.String()})
	}

	conf["ipam"] = map[string]any{"type": "host-local", "ranges": ranges, "routes": routes}
	return conf
}

func pluginType(conf map[string]any) string {
	name, _ := conf["type"].(string)
	return name
}
