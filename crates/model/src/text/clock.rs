//! Dates for `strftime_now`, from a clock that the caller gives.

/// Seconds since 1970-01-01 00:00 UTC, asked once for each prompt.
pub type Clock = fn() -> i64;

/// The system's clock. Dates are in UTC: the same prompt on every machine.
#[must_use]
pub fn system_clock() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// `strftime` for the letters that templates use; others stay as they are.
pub(super) fn strftime(seconds: i64, format: &str) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let weekday = usize::try_from((days + 4).rem_euclid(7)).unwrap_or(0);
    let month_name = MONTHS[usize::try_from(month - 1).unwrap_or(0)];
    let hour_12 = (hour + 11) % 12 + 1;
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let (padded, letter) = match chars.next() {
            Some('-') => (false, chars.next()),
            letter => (true, letter),
        };
        let two = |number: i64| if padded { format!("{number:02}") } else { number.to_string() };
        match letter {
            Some('Y') => out.push_str(&year.to_string()),
            Some('y') => out.push_str(&two(year.rem_euclid(100))),
            Some('m') => out.push_str(&two(month)),
            Some('d') => out.push_str(&two(day)),
            Some('H') => out.push_str(&two(hour)),
            Some('I') => out.push_str(&two(hour_12)),
            Some('M') => out.push_str(&two(minute)),
            Some('S') => out.push_str(&two(second)),
            Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
            Some('B') => out.push_str(month_name),
            Some('b') => out.push_str(&month_name[..3]),
            Some('A') => out.push_str(DAYS[weekday]),
            Some('a') => out.push_str(&DAYS[weekday][..3]),
            Some('j') => {
                let yday = days - days_before(year) + 1;
                out.push_str(&if padded { format!("{yday:03}") } else { yday.to_string() });
            }
            Some('F') => out.push_str(&format!("{year}-{month:02}-{day:02}")),
            Some('T') => out.push_str(&format!("{hour:02}:{minute:02}:{second:02}")),
            Some('Z') => out.push_str("UTC"),
            Some('z') => out.push_str("+0000"),
            Some('%') => out.push('%'),
            Some(other) => out.extend(['%', other]),
            None => out.push('%'),
        }
    }
    out
}

/// Days from 1970-01-01 to January 1st of `year`, proleptic Gregorian.
fn days_before(year: i64) -> i64 {
    let y = year - 1;
    y * 365 + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) - 719_162
}

/// Year, month from 1 and day from 1 of a day counted from 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days.clamp(-10_000_000, 100_000_000); // Far beyond any clock; keeps the sums small.
    let mut year = 1970 + days.div_euclid(366);
    while days_before(year + 1) <= days {
        year += 1;
    }
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut left = days - days_before(year);
    for (month, length) in (1..).zip(lengths) {
        if left < length {
            return (year, month, left + 1);
        }
        left -= length;
    }
    (year, 12, 31)
}
