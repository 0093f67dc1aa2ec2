// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"io/fs"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/signing"
)

// AddonPlainRegistryScheme begins the reference of an artifact in a registry that is asked over
// HTTP.
const AddonPlainRegistryScheme = "oci+http://"

// The intervals at which the source of a channel is looked at.
const (
	DefaultAddonSourceInterval = 5 * time.Minute
	minAddonSourceInterval     = time.Minute
	maxAddonSourceInterval     = 24 * time.Hour
)

// AddonSourceInterval returns the time between two looks at the source of a channel, which is
// valid.
func AddonSourceInterval(s v1alpha1.AddonChannelSource) time.Duration {
	if d, err := time.ParseDuration(s.Interval); err == nil {
		return d
	}

	return DefaultAddonSourceInterval
}

// AddonSourceHost returns the host of the registry or the repository of a channel, with its port.
func AddonSourceHost(s v1alpha1.AddonChannelSource) string {
	_, rest, _ := strings.Cut(s.OCI+s.Git, "://")
	host, _, _ := strings.Cut(rest, "/")

	return host
}

// addonChannelSourceShape returns the source of a channel with every field set; see clusterShape.
func addonChannelSourceShape() *v1alpha1.AddonChannelSource {
	return &v1alpha1.AddonChannelSource{
		OCI:         "x",
		Git:         "x",
		Ref:         "x",
		Path:        "x",
		Interval:    "x",
		Credentials: "x",
		PublicKeys:  []string{"x"},
	}
}

// sourceErrorf reports a field of the source of the channel.
func (c addonChecker) sourceErrorf(field string, what [2]string, format string, args ...any) {
	path := c.path() + ": spec.source"
	if field != "" {
		path += "." + field
	}

	c.fs.Errorf(path, what[0], what[1], format, args...)
}

// checkChannelSource checks where the control plane reads the channel from.
func (c addonChecker) checkChannelSource(s v1alpha1.AddonChannelSource) {
	if len(c.channel.Spec.Addons) > 0 {
		c.sourceErrorf("", [2]string{"", "remove spec.addons: they are in the source"}, "is given in addition to spec.addons")
	}

	switch {
	case (s.OCI == "") == (s.Git == ""):
		c.sourceErrorf("oci", [2]string{s.OCI, "write one of oci and git"}, "is given in addition to git, or is missing")
	case s.Git != "":
		c.checkGitSource(s)
	default:
		c.checkArtifactSource(s)
	}

	c.checkSourceSettings(s)
}

// checkSourceSettings checks what sources of both kinds have.
func (c addonChecker) checkSourceSettings(s v1alpha1.AddonChannelSource) {
	if d, err := time.ParseDuration(s.Interval); s.Interval != "" &&
		(err != nil || d < minAddonSourceInterval || d > maxAddonSourceInterval) {
		c.sourceErrorf("interval", [2]string{s.Interval, "write a time from 1m to 24h"}, "is not a valid interval")
	}

	if s.Path != "" && (!fs.ValidPath(s.Path) || s.Path == ".") {
		fix := "write the path of a directory, such as clusters/demo"
		c.sourceErrorf("path", [2]string{s.Path, fix}, "is not a path below the root of the source")
	}

	if s.Credentials != "" {
		if err := CheckRegistrySecretName(s.Credentials); err != nil {
			c.sourceErrorf("credentials", [2]string{s.Credentials, "write the name of a registry secret"}, "%s", err)
		}
	}
}

// artifactReference is HOST/REPOSITORY with a tag or a digest:
// https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests.
const artifactReference = `^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)+(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}|@sha256:[0-9a-f]{64})$`

// checkArtifactSource checks the reference of an artifact, and its keys.
func (c addonChecker) checkArtifactSource(s v1alpha1.AddonChannelSource) {
	scheme, reference, _ := strings.Cut(s.OCI, "://")
	isPlain := scheme+"://" == AddonPlainRegistryScheme
	fix := "write oci://HOST/REPOSITORY:TAG, or oci://HOST/REPOSITORY@sha256:HASH"

	switch {
	case !isPlain && scheme+"://" != AddonRegistryScheme, !regexp.MustCompile(artifactReference).MatchString(reference):
		c.sourceErrorf("oci", [2]string{s.OCI, fix}, "is not the reference of an artifact")
	case isPlain && len(s.PublicKeys) == 0 && !strings.Contains(reference, "@"):
		c.sourceErrorf("oci", [2]string{s.OCI, "write publicKeys, or a digest"},
			"is asked over HTTP, and nothing verifies the answer")
	case isPlain && s.Credentials != "":
		c.sourceErrorf("credentials", [2]string{s.Credentials, "use oci://"}, "are not sent over HTTP")
	}

	if s.Ref != "" {
		c.sourceErrorf("ref", [2]string{s.Ref, "remove it: the tag is in oci"}, "is for Git repositories only")
	}

	for n, key := range s.PublicKeys {
		if _, err := signing.ParseArtifactKey(key); err != nil {
			c.sourceErrorf(fmt.Sprintf("publicKeys[%d]", n), [2]string{"", "write the text of cosign.pub"}, "%s", err)
		}
	}
}

// checkGitSource checks the address of a Git repository, and its keys.
func (c addonChecker) checkGitSource(s v1alpha1.AddonChannelSource) {
	address, err := url.Parse(s.Git)

	switch {
	case err != nil || address.Scheme != "https" || address.Host == "" || address.RawQuery != "" || address.Fragment != "":
		c.sourceErrorf("git", [2]string{"", "write an address such as https://example.com/team/addons.git"},
			"is not the HTTPS address of a repository")
	case address.User != nil:
		fix := "remove them, and name a registry secret in credentials"
		c.sourceErrorf("git", [2]string{"", fix}, "has a user name or a password")
	}

	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,199}$`).MatchString(s.Ref) || strings.Contains(s.Ref, "..") {
		c.sourceErrorf("ref", [2]string{s.Ref, "write a branch or a tag, such as main"}, "is not the name of a branch or a tag")
	}

	for n, key := range s.PublicKeys {
		if _, err := signing.ParseCommitKey(key); err != nil {
			fix := "write the text of a .pub file of an SSH key"
			c.sourceErrorf(fmt.Sprintf("publicKeys[%d]", n), [2]string{"", fix}, "%s", err)
		}
	}
}
