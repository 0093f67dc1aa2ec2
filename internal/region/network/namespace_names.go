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

// namespaceNames says what this region's namespaces and links are called. A name follows from an id alone, so nothing has to
// be remembered to find them again.
type namespaceNames struct {
	region string
	folder string
}

func (n namespaceNames) namePrefix() string { return "slw-" + n.region + "-" }

// namespacePath is where the namespace of a VPC or an instance lies.
func (n namespaceNames) namespacePath(id string) string {
	return filepath.Join(n.folder, n.namePrefix()+id)
}

// listIDs lists the VPC and instance ids that have a namespace of this region, sorted. The id must be the whole rest
// of the name: region "a" must not take the namespaces of region "a-b".
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

// linkName is the router's end of the veth to the machine with this address. It fits the kernel's 15 characters,
// is unique in the VPC and can be written into rules before the link exists.
func linkName(addr netip.Addr) string { return "v" + hexAddr(addr) }

func hexAddr(addr netip.Addr) string { return fmt.Sprintf("%x", addr.As4()) }

// nthAddr is the address n places after the first of a range: 1 is a subnet's router, 2 the VPC's resolver.
func nthAddr(p netip.Prefix, n int) netip.Addr {
	addr := p.Masked().Addr()
	for range n {
		addr = addr.Next()
	}

	return addr
}
