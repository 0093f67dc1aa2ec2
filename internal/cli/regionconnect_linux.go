// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/region"
)

func newRegionConnectCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "connect ADDRESS PORT",
		Short: "Connect to a port of a machine of the local region",
		Long: `Connect standard input and output to a port of the machine of the local region that has a private ADDRESS. Security
groups do not apply: it is as a program on the machine that connects. 'slipway region env' makes it the proxy command of
'slipway ssh'. Needs root.` + exitStatusHelp(),
		Example: "  slipway region connect 10.80.16.4 22\n  ssh -o ProxyCommand='slipway region connect %h %p' admin@10.80.16.4",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return requireOneArgument("ADDRESS and PORT")(cmd, nil)
			}

			return limitArguments(cmd, args, 2)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			cache, err := a.cacheDir()
			if err != nil {
				return err
			}

			to, err := netip.ParseAddrPort(args[0] + ":" + args[1])
			if err != nil || !to.Addr().Is4() {
				return withHint(errors.New("invalid ADDRESS or PORT: "+args[0]+" "+args[1]),
					"give an IPv4 address of 'slipway get machines -o wide' and a port such as 22")
			}

			return region.Connect(cmd.Context(), region.ConnectOptions{
				CacheDir: cache,
				To:       to,
				In:       a.Stdin,
				Out:      a.Stdout,
			})
		},
	}
}
