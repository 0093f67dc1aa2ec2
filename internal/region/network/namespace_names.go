// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// namespaceNames determines the names of this region's namespaces. Names follow from ids, so they
// need not be stored.
type namespaceNames struct {
	region string
	folder string
}

func (n namespaceNames) namePrefix() string { return "slw-" + n.region + "-" }

// namespacePath returns the path of the namespace of a VPC or an instance.
func (n namespaceNames) namespacePath(id string) string {
	return filepath.Join(n.folder, n.namePrefix()+id)
}

// listIDs returns the ids of VPCs and instances with a namespace of this region, sorted. The whole
// rest of the name must be an id: region "a" must not match namespaces of region "a-b".
func (n namespaceNames) listIDs() ([]string, error) {
	entries, err := os.ReadDir(n.folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}

	if err != nil {
		return nil, fmt.Errorf("list network namespaces: %w", err)
	}

	var out []string

	for _, e := range entries {
		id, ours := strings.CutPrefix(e.Name(), n.namePrefix())
		if ours && (isVPC(id) || isInstance(id)) {
			out = append(out, id)
		}
	}

	return out, nil
}

func isVPC(id string) bool { return regexp.MustCompile(`^vpc-[0-9a-f]+$`).MatchString(id) }

func isInstance(id string) bool { return regexp.MustCompile(`^i-[0-9a-f]+$`).MatchString(id) }

// linkName returns the name of the router's link to the machine with this address. It fits the
// kernel's 15 characters, is unique in the VPC, and is known before the link exists, so that rules
// can refer to it.
func linkName(addr netip.Addr) string { return "v" + hexAddr(addr) }

func hexAddr(addr netip.Addr) string { return fmt.Sprintf("%x", addr.As4()) }

// nthAddr returns the n-th address after the first of a range: 1 is a subnet's router, 2 is the
// VPC's resolver.
func nthAddr(p netip.Prefix, n int) netip.Addr {
	addr := p.Masked().Addr()
	for range n {
		addr = addr.Next()
	}

	return addr
}
