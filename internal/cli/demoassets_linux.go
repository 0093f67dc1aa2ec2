// SPDX-License-Identifier: Apache-2.0

package cli

// assetsFound is what the demo found out about the files and images that machines download.
type assetsFound struct {
	present     bool // there is a catalogue
	downloaded  bool // it is of upstream's releases
	canDownload bool // upstream's releases are reachable
	canBuild    bool // the sources and Go are there
}

// assetsChoice is how the demo gets the assets.
type assetsChoice string

// The choices.
const (
	useAssets      assetsChoice = "use"      // those of an earlier run
	downloadAssets assetsChoice = "download" // upstream's releases
	buildAssets    assetsChoice = "build"    // from source, or what has changed of an earlier build
	noAssets       assetsChoice = "none"     // they cannot be had
)

// chooseAssets decides how the demo gets the assets. The first run downloads them if it can, because a build takes 25
// minutes. What was downloaded is used as it is; what was built is kept up to date with its sources.
func chooseAssets(found assetsFound) assetsChoice {
	switch {
	case found.present && (found.downloaded || !found.canBuild):
		return useAssets
	case !found.present && found.canDownload:
		return downloadAssets
	case found.canBuild:
		return buildAssets
	}

	return noAssets
}
