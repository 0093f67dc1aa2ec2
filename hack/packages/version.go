// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// version is the version of a release.
type version struct {
	// number is a semantic version without v, such as 1.2.3 or 1.2.4-dev.5.gabcdef1.
	number string
	// when is the time of the commit. Every file of the release has it.
	when time.Time
}

// readVersion returns the version of the checkout at root, from its tags and its last commit.
func readVersion(ctx context.Context, root string) (version, error) {
	described, err := git(ctx, root, "describe", "--tags", "--always", "--dirty", "--match", "v[0-9]*")
	if err != nil {
		return version{}, err
	}

	seconds, err := git(ctx, root, "log", "-1", "--format=%ct")
	if err != nil {
		return version{}, err
	}

	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return version{}, fmt.Errorf("read the time of the last commit: %w", err)
	}

	when := time.Unix(unix, 0).UTC()

	return version{number: numberOf(described, when), when: when}, nil
}

// numberOf returns the semantic version of what git describe prints. A commit after a tag is a development
// version of the next patch; one without a tag is a development version of 0.0.0. Both sort before the
// release, and by the number of commits or by time.
func numberOf(described string, when time.Time) string {
	described, isDirty := strings.CutSuffix(described, "-dirty")
	dirty := ""
	if isDirty {
		dirty = ".dirty"
	}

	tag := regexp.MustCompile(`^v(\d+)\.(\d+)\.(\d+)(-[0-9A-Za-z.]+)?(?:-(\d+)-(g[0-9a-f]+))?$`)
	found := tag.FindStringSubmatch(described)
	if found == nil {
		return "0.0.0-dev." + when.Format("20060102150405") + ".g" + described + dirty
	}

	major, minor, patch, suffix, commits, hash := found[1], found[2], found[3], found[4], found[5], found[6]
	if commits == "" && !isDirty {
		return major + "." + minor + "." + patch + suffix
	}

	if commits == "" {
		commits, hash = "0", "g0"
	}

	if suffix == "" {
		n, _ := strconv.Atoi(patch) // digits only
		return fmt.Sprintf("%s.%s.%d-dev.%s.%s%s", major, minor, n+1, commits, hash, dirty)
	}

	return fmt.Sprintf("%s.%s.%s%s.dev.%s.%s%s", major, minor, patch, suffix, commits, hash, dirty)
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s in %s: %w", strings.Join(args, " "), root, err)
	}

	return strings.TrimSpace(string(out)), nil
}
