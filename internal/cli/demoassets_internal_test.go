// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import "testing"

func TestChooseAssets(t *testing.T) {
	for name, c := range map[string]struct {
		found assetsFound
		want  assetsChoice
	}{
		"first run with internet access": {assetsFound{canDownload: true, canBuild: true}, downloadAssets},
		"first run of a package":         {assetsFound{canDownload: true}, downloadAssets},
		"first run without a network":    {assetsFound{canBuild: true}, buildAssets},
		"nothing is possible":            {assetsFound{}, noAssets},
		"downloaded before":              {assetsFound{present: true, downloaded: true, canBuild: true}, useAssets},
		"built before":                   {assetsFound{present: true, canBuild: true}, buildAssets},
		"built before, Go was removed":   {assetsFound{present: true}, useAssets},
	} {
		if got := chooseAssets(c.found); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
