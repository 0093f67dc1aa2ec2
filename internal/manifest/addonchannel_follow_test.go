// SPDX-License-Identifier: Apache-2.0

package manifest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// artifactKey and commitKey are public keys that were made for this test.
const (
	artifactKey = `"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n"`
	commitKey   = `"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBm/RAlphM3+hUG6wWfcO5bIUIaqMLa2ywxcOK1wMWbh"`
)

func followedChannel(source string) string {
	return "apiVersion: slipway.dev/v1alpha1\nkind: AddonChannel\nmetadata: {name: base}\nspec:\n  source: {" + source + "}\n"
}

func TestChannelSource(t *testing.T) {
	t.Parallel()

	for source, host := range map[string]string{
		"oci: oci://registry.example.com/team/base:stable":                                                                  "registry.example.com",
		"oci: oci://registry.example.com:5000/base@sha256:" + strings.Repeat("0", 64):                                       "registry.example.com:5000",
		"oci: oci+http://198.18.0.1:5000/base:stable, interval: 1m, path: clusters/demo, publicKeys: [" + artifactKey + "]": "198.18.0.1:5000",
		"oci: oci+http://198.18.0.1:5000/base@sha256:" + strings.Repeat("0", 64):                                            "198.18.0.1:5000",
		"git: https://example.com/a.git, ref: main, credentials: git, publicKeys: [" + commitKey + "]":                      "example.com",
	} {
		channel, fs := manifest.ParseAddonChannel([]byte(followedChannel(source)))
		if len(fs) > 0 || channel.Spec.Source == nil {
			t.Errorf("%s: %v", source, fs)
			continue
		}

		if got := manifest.AddonSourceHost(*channel.Spec.Source); got != host {
			t.Errorf("%s: host %s", source, got)
		}
	}

	if d := manifest.AddonSourceInterval(v1alpha1.AddonChannelSource{}); d != 5*time.Minute {
		t.Errorf("the default is %s", d)
	}
}

func TestChannelSourceFindings(t *testing.T) {
	t.Parallel()
	const good = "oci: oci://registry.example.com/base:stable"

	for source, want := range map[string]string{
		"interval: 5m": "spec.source.oci",
		good + ", git: https://example.com/a.git":                                      "spec.source.oci",
		"oci: registry.example.com/base:stable":                                        "is not the reference of an artifact",
		"oci: oci://registry.example.com/base":                                         "is not the reference of an artifact",
		"oci: oci://registry.example.com/base@sha256:abc":                              "is not the reference of an artifact",
		"oci: oci://user:password@registry.example.com/a:b":                            "is not the reference of an artifact",
		"oci: http://registry.example.com/base:stable":                                 "is not the reference of an artifact",
		"oci: oci+http://registry.example.com/base:stable":                             "is asked over HTTP, and nothing verifies the answer",
		good + ", ref: main":                                                           "is for Git repositories only",
		good + ", interval: 10s":                                                       "is not a valid interval",
		good + ", interval: 48h":                                                       "is not a valid interval",
		good + ", path: ../other":                                                      "is not a path below the root",
		good + ", path: /etc":                                                          "is not a path below the root",
		good + ", credentials: A_B":                                                    "spec.source.credentials",
		good + ", publicKeys: [x]":                                                     "spec.source.publicKeys[0]: is not in PEM",
		good + ", publicKeys: [" + commitKey + "]":                                     "spec.source.publicKeys[0]: is not in PEM",
		good + ", branch: main":                                                        "spec.source.branch",
		"git: http://example.com/a.git, ref: main":                                     "is not the HTTPS address of a repository",
		"git: ssh://git@example.com/a.git, ref: main":                                  "is not the HTTPS address of a repository",
		"git: \"https://example.com/a.git?token=x\", ref: main":                        "is not the HTTPS address of a repository",
		"git: https://token@example.com/a.git, ref: main":                              "has a user name or a password",
		"git: https://example.com/a.git":                                               "is not the name of a branch or a tag",
		"git: https://example.com/a.git, ref: --upload-pack=x":                         "is not the name of a branch or a tag",
		"git: https://example.com/a.git, ref: a..b":                                    "is not the name of a branch or a tag",
		"git: https://example.com/a.git, ref: main, publicKeys: [" + artifactKey + "]": "spec.source.publicKeys[0]: is not the public key",
		"oci: oci+http://198.18.0.1:5000/base@sha256:" + strings.Repeat("0", 64) + ", credentials: a": "are not sent over HTTP",
	} {
		_, fs := manifest.ParseAddonChannel([]byte(followedChannel(source)))
		if text := fs.Error(); !strings.Contains(text, want) || strings.Contains(text, "token") {
			t.Errorf("%s: %s, want %s", source, text, want)
		}
	}

	both := strings.Replace(goodChannel, "spec:\n", "spec:\n  source: {"+good+"}\n", 1)
	if _, fs := manifest.ParseAddonChannel([]byte(both)); !strings.Contains(fs.Error(), "is given in addition to spec.addons") {
		t.Errorf("both: %v", fs)
	}
}
