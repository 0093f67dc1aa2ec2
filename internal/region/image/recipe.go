// SPDX-License-Identifier: Apache-2.0

package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// The distributions of the images, by their names in manifests.
const (
	Debian12   = "debian-12"
	Ubuntu2404 = "ubuntu-24.04"
)

// Distributions returns the distributions that an image can be built of, the default first.
func Distributions() []string { return []string{Debian12, Ubuntu2404} }

// recipe determines the content of a distribution's image, except for the versions that its mirror has.
type recipe struct {
	suite    string            // as debootstrap calls it
	script   string            // path of debootstrap's script; empty for that of the suite
	mirrors  map[string]string // URLs of the mirrors by architecture; none for the Debian mirror of this machine
	keyring  pinnedPackage     // package with the keys of the mirror; none if this machine has them
	packages []string          // arguments of apt-get install
	masked   []string          // systemd units
	overlay  []byte            // txtar archive of the region's files
	finish   string            // script that installs packages and trims the root
	cache    string            // folder of downloaded packages in the cache
}

// findRecipe returns the recipe of a distribution; empty means the default.
func findRecipe(distribution string) (recipe, error) {
	switch distribution {
	case "", Debian12:
		return debianRecipe(), nil
	case Ubuntu2404:
		return ubuntuRecipe(), nil
	default:
		return recipe{}, fmt.Errorf(
			"no image can be built of %q: use one of %s",
			distribution,
			strings.Join(Distributions(), ", "),
		)
	}
}

// contentHash returns a hash of everything that determines the content of the image for an architecture,
// in hex digits.
func (r recipe) contentHash(arch string) string {
	h := sha256.New()
	fmt.Fprintf(
		h,
		"%s\n%s\n%s\n%s\n",
		r.suite,
		arch,
		strings.Join(r.packages, "\n"),
		strings.Join(r.masked, "\n"),
	)

	h.Write(r.overlay)
	h.Write([]byte(r.finish))
	h.Write([]byte(r.keyring.sha256))

	return hex.EncodeToString(h.Sum(nil))
}

// debootstrapArguments returns the arguments of debootstrap for a new root. Keyring is the path of the keys of the
// mirror; empty means those of this machine.
func (r recipe) debootstrapArguments(root, mirror, keyring string, options ...string) []string {
	args := append([]string{"--force-check-gpg", "--variant=minbase"}, options...)
	if keyring != "" {
		args = append(args, "--keyring="+keyring)
	}

	args = append(args, "--include="+strings.Join(basePackages(), ","), r.suite, root)
	more := slices.DeleteFunc([]string{mirror, r.script}, func(s string) bool { return s == "" })

	return append(args, more...)
}
