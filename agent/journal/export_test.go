package journal

// For tests of package journal_test.
const (
	KeptRecords      = keptRecords
	KeptUnreadable   = keptUnreadable
	UnreadableSuffix = unreadableSuffix
)
